-- Keeps settings for a while, in place of those that were there.
--
-- KEYS  1 settings (hash)
-- ARGV  1 for how long, in seconds  then name, value, and so on
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 2))
redis.call('EXPIRE', KEYS[1], ARGV[1])
