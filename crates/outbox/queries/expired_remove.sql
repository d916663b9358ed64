DELETE FROM {outbox_events}
WHERE id IN (:ids[number])
