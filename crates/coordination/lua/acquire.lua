-- Acquires a lock if it is free or already belongs to the same owner.
--
-- KEYS  1 lock
-- ARGV  1 owner  2 lease time in ms
-- Returns nil if the lock was acquired; else the ms until the other owner's lock ends, negative if it never expires.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return redis.call('PTTL', KEYS[1]) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
