-- Releases a lock, if the caller owns it.
--
-- KEYS  1 lock
-- ARGV  1 owner
-- Returns 1, or 0 if the lock does not belong to the owner.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
