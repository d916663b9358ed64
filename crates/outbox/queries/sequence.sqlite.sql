UPDATE {outbox_events} SET position = :after + listed.key + 1
FROM json_each(:ids) AS listed
WHERE {outbox_events}.id = listed.value
