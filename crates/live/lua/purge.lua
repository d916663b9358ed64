-- Removes all entries of a subject except the newest, and the answers stored under its idempotency keys.
--
-- KEYS  1 stream  2 answers by idempotency key (hash)  3 idempotency keys by expiry (zset)
redis.call('XTRIM', KEYS[1], 'MAXLEN', 1)
redis.call('DEL', KEYS[2], KEYS[3])
