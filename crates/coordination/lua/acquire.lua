-- Takes a lock if nobody has it.
--
-- KEYS  1 lock
-- ARGV  1 owner  2 for how long, in ms
-- Gives nothing when it was taken, or the ms until the lock of another owner ends, negative when it does not.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return redis.call('PTTL', KEYS[1]) end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
