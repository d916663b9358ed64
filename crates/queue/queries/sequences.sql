SELECT message_key, sequence FROM bongsu_queue_sequences
WHERE queue = :queue AND message_key IN (:keys[text])
