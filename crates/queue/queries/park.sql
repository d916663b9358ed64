UPDATE bongsu_queue_messages
SET attempts = :attempts, ready_at = :until, waiting_key = CASE WHEN is_ordered = 1 THEN message_key END
WHERE id = :id
