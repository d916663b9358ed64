-- Takes something out of an index, if nobody marked it again and nobody can still rely on its mark: who writes refuses one
-- that is half as old.
--
-- KEYS  1 index (zset by time)
-- ARGV  1 its name  2 its mark in ms, as it was seen
local clock = redis.call('TIME')
local mark = redis.call('ZSCORE', KEYS[1], ARGV[1])
if mark == ARGV[2] and clock[1] * 1000 - mark > 60000 then redis.call('ZREM', KEYS[1], ARGV[1]) end
