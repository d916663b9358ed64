-- The newest row of each target that the hub was told of, and the newest of those that are gone.
SELECT listed.target, newest.position, newest.id, gone.position, gone.id
FROM json_array_elements_text((:targets)::json) AS listed (target)
LEFT JOIN {outbox_events} newest
    ON newest.target_event_id = listed.target AND newest.position =
        (SELECT last.position FROM {outbox_events} last
         WHERE last.target_event_id = listed.target AND last.position <= :reached
         ORDER BY last.position DESC LIMIT 1)
LEFT JOIN bongsu_outbox_gone gone ON gone.target_event_id = listed.target
