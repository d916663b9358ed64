-- Assigns id before position, because the condition on id needs the stored position.
INSERT INTO bongsu_outbox_gone (target_event_id, position, id)
SELECT target, place, number
FROM JSON_TABLE(:gone, '$[*]' COLUMNS (
    target VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin PATH '$[0]',
    place BIGINT PATH '$[1]', number BIGINT PATH '$[2]')) AS gone
ORDER BY target
ON DUPLICATE KEY UPDATE
    id = IF(VALUES(position) > bongsu_outbox_gone.position, VALUES(id), bongsu_outbox_gone.id),
    position = GREATEST(VALUES(position), bongsu_outbox_gone.position)
