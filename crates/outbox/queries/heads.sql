-- For each target: the newest row that the tail has passed, and the last row that retention removed.
SELECT listed.value, newest.position, newest.id, gone.position, gone.id
FROM (:targets[text]) AS listed
LEFT JOIN {outbox_events} newest
    ON newest.target_event_id = listed.value AND newest.position =
        (SELECT last.position FROM {outbox_events} last
         WHERE last.target_event_id = listed.value AND last.position <= :reached
         ORDER BY last.position DESC LIMIT 1)
LEFT JOIN bongsu_outbox_gone gone ON gone.target_event_id = listed.value
