-- Removes an item from an index, if its mark has not changed and is older than 60 s. Scripts that write under a mark
-- refuse one that is older than 30 s, so no write can rely on a removed mark.
--
-- KEYS  1 index (zset by time)
-- ARGV  1 name of the item  2 its mark in ms, as the caller has read it
local clock = redis.call('TIME')
local mark = redis.call('ZSCORE', KEYS[1], ARGV[1])
if mark == ARGV[2] and clock[1] * 1000 - mark > 60000 then redis.call('ZREM', KEYS[1], ARGV[1]) end
