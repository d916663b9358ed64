-- Counts a person's tickets of the last while.
--
-- KEYS  1 counter
-- ARGV  1 the while, in ms
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count
