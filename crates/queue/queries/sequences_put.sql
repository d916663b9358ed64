INSERT INTO bongsu_queue_sequences (queue, message_key, sequence, updated_at)
SELECT :queue, item.value ->> 0, CAST(item.value ->> 1 AS BIGINT), :now FROM (:sequences[row]) AS item WHERE true
ON CONFLICT (queue, message_key) DO UPDATE SET sequence = excluded.sequence, updated_at = excluded.updated_at
