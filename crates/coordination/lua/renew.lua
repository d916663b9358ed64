-- Lets a lock last on, for its owner.
--
-- KEYS  1 lock
-- ARGV  1 owner  2 for how long, in ms
-- Gives 1, or 0 when it is not the owner's.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
