UPDATE {outbox_events} SET position = :after + listed.place
FROM json_array_elements_text((:ids)::json) WITH ORDINALITY AS listed (id, place)
WHERE {outbox_events}.id = listed.id::bigint
