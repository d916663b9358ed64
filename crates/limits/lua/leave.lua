-- Ends the lease of an instance in a shard, and so all its places there.
--
-- KEYS  1 instances of the shard by the end of their lease (zset)
-- ARGV  1 instance
redis.call('ZREM', KEYS[1], ARGV[1])
