-- Ends a lock, for its owner.
--
-- KEYS  1 lock
-- ARGV  1 owner
-- Gives 1, or 0 when it is not the owner's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
