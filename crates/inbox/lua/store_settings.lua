-- Replaces the cached settings of one person.
--
-- KEYS  1 settings (hash)
-- ARGV  1 expiry in seconds  then pairs of name and value
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])
