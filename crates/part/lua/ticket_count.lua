-- Counts the tickets issued to a person in the current window, which begins with the first of these tickets.
--
-- KEYS  1 counter
-- ARGV  1 length of the window, in ms
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('PEXPIRE', KEYS[1], ARGV[1]) end
return count
