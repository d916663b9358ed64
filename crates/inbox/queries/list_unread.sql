SELECT seq, event_id, type, ref_id, actor_id, payload, created_at, read_at
FROM (
  SELECT listed.*, SUM(OCTET_LENGTH(payload)) OVER (ORDER BY seq DESC) - OCTET_LENGTH(payload) AS bytes_before
  FROM (
    SELECT entry.seq, notice.event_id, notice.type, notice.ref_id, notice.actor_id, notice.payload, entry.created_at, entry.read_at
    FROM bongsu_inbox entry JOIN bongsu_notices notice ON notice.id = entry.notice_id
    WHERE entry.person_id = :person AND entry.seq < :before AND entry.deleted_at IS NULL AND entry.read_at IS NULL
      AND entry.seq NOT IN (:seqs[number])
    ORDER BY entry.seq DESC LIMIT :limit
  ) AS listed
) AS measured
WHERE bytes_before <= :bytes
ORDER BY seq DESC
