SELECT entry.seq, notice.event_id, notice.type, notice.ref_id, notice.actor_id, notice.payload, entry.created_at, entry.read_at
FROM bongsu_inbox entry JOIN bongsu_notices notice ON notice.id = entry.notice_id
WHERE entry.person_id = :person AND entry.seq > :after AND entry.deleted_at IS NULL
ORDER BY entry.seq LIMIT :limit
