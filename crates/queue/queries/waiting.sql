-- Of each listed key, the first message that waits; NULL if none does.
SELECT listed.value,
    (SELECT id FROM bongsu_queue_messages
     WHERE queue = :queue AND waiting_key = listed.value ORDER BY id LIMIT 1)
FROM (:keys[text]) AS listed
