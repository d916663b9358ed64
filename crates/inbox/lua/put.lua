-- Takes down that an entry was read. The index of people is elsewhere and was marked before: a mark that is too old would
-- never be found.
--
-- KEYS  1 marks (hash)
-- ARGV  1 entry  2 when it was read, in ms  3 the index's mark, in ms  4 how many there may be
-- Gives 'new', or when it was read before; 'unmarked', or 'full'.
local clock = redis.call('TIME')
if clock[1] * 1000 - ARGV[3] > 30000 then return 'unmarked' end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return known end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 'full' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 'new'
