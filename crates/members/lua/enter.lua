-- Counts a personal stream in, by the server's own time. Those of hubs that are gone go first, then the oldest beyond the
-- limit, which is told to whoever holds it.
--
-- KEYS  1 connections (zset by time)  2 their hubs (hash)
-- ARGV  1 connection  2 its hub  3 how many may stay  4 how long a stream lives, in ms  5 channel  6 the person as JSON
--       then every hub that is alive
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local function forget(connection)
  redis.call('ZREM', KEYS[1], connection)
  redis.call('HDEL', KEYS[2], connection)
end

local alive = {}
for at = 7, #ARGV do alive[ARGV[at]] = true end
local hubs = redis.call('HGETALL', KEYS[2])
for at = 1, #hubs, 2 do
  local since = tonumber(redis.call('ZSCORE', KEYS[1], hubs[at]) or 0)
  -- A hub that has just come may not be known everywhere yet.
  local gone = not alive[hubs[at + 1]] and now - since > 3000
  if gone or now - since > tonumber(ARGV[4]) then forget(hubs[at]) end
end

-- Later than all others, also within one tick of the clock: with equal times the name would decide who is oldest.
local newest = redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2]
if newest and tonumber(newest) >= now then now = newest + 0.001 end
redis.call('ZADD', KEYS[1], string.format('%.3f', now), ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
local over = redis.call('ZCARD', KEYS[1]) - tonumber(ARGV[3])
if over > 0 then
  local oldest = redis.call('ZPOPMIN', KEYS[1], over)
  for at = 1, #oldest, 2 do
    redis.call('HDEL', KEYS[2], oldest[at])
    redis.call('PUBLISH', ARGV[5], '{"memberId":' .. ARGV[6] .. ',"connectionId":"' .. oldest[at] .. '"}')
  end
end
local life = string.format('%.0f', 2 * ARGV[4])
redis.call('PEXPIRE', KEYS[1], life)
redis.call('PEXPIRE', KEYS[2], life)
