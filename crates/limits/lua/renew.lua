-- Renews the lease of an instance in a shard, and forgets those that ended.
--
-- KEYS  1 instances of the shard by the end of their lease, in ms (zset)
-- ARGV  1 instance  2 lease in ms
-- Gives 1, or 0 when the lease had ended.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local was_leased = redis.call('ZSCORE', KEYS[1], ARGV[1]) and 1 or 0
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2)
return was_leased
