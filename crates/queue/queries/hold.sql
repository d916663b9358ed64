-- Makes messages wait: until a time, or behind another message of their key.
UPDATE bongsu_queue_messages
SET ready_at = :until, waiting_key = CASE WHEN is_ordered = 1 THEN message_key END
WHERE id IN (:ids[number])
