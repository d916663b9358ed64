-- What time a personal stream has that comes now: the server's own, and later than that of all others, also after the clock
-- was set back.
--
-- KEYS  1 streams (zset by time)
-- Gives that time, and the clock's, both in ms.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local newest = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0)
return { string.format('%.3f', math.max(now, newest + 0.001)), string.format('%.0f', now) }
