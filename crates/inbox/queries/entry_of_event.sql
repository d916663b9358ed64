SELECT entry.seq, entry.read_at FROM bongsu_inbox entry JOIN bongsu_notices notice ON notice.id = entry.notice_id
WHERE notice.event_id = :event AND notice.of_room = :of_room AND entry.person_id = :person AND entry.deleted_at IS NULL
