-- Those that nobody else holds.
SELECT id FROM outbox_events
WHERE id IN (SELECT value::bigint FROM json_array_elements_text((:ids)::json)) AND position IS NULL
FOR UPDATE SKIP LOCKED
