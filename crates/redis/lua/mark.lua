-- Marks an item in an index, before the caller writes the item's pending data to another slot.
--
-- KEYS  1 index (zset by time)
-- ARGV  1 name of the item
-- Returns the mark: the server's time in ms.
local clock = redis.call('TIME')
local ms = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
redis.call('ZADD', KEYS[1], ms, ARGV[1])
return ms
