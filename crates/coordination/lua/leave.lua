-- Removes an instance from the registry.
--
-- KEYS  1 instances by the end of their lease (zset)  2 stored form of each instance (hash)
-- ARGV  1 instance
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
