-- Removes all of a subject but its newest entry, and the answers kept for its keys.
--
-- KEYS  1 stream  2 answers by key (hash)  3 keys by expiry (zset)
redis.call('XTRIM', KEYS[1], 'MAXLEN', 1)
redis.call('DEL', KEYS[2], KEYS[3])
