-- Renews a lock, if the caller owns it.
--
-- KEYS  1 lock
-- ARGV  1 owner  2 lease time in ms
-- Returns 1, or 0 if the lock does not belong to the owner.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
