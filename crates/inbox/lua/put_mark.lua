-- Stores a read mark. The index of persons with marks is another key, possibly on another node, and was updated before
-- this script; when that index entry is older than 30 seconds, the mark is refused, because the write-behind loop might
-- not find the mark.
--
-- KEYS  1 read marks of one person (hash)
-- ARGV  1 sequence number of the entry  2 read time in ms  3 time of the index entry in ms  4 maximum number of marks
-- Returns 'new'; the read time of an earlier mark; 'unmarked' for an index entry that is too old; or 'full'.
local clock = redis.call('TIME')
if clock[1] * 1000 - ARGV[3] > 30000 then return 'unmarked' end
local known = redis.call('HGET', KEYS[1], ARGV[1])
if known then return known end
if redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 'full' end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 'new'
