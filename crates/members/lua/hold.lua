-- Takes a hub's word for which personal streams of a person it holds: all of these, and no others. What is missing is
-- counted in with the time it has had from the start, so that nobody grows younger by being forgotten; then the oldest beyond
-- the limit go, which is told to whoever holds them. A hub that was killed a moment ago still counts as alive: before anybody
-- goes because of its streams, it is asked whether it has them.
--
-- KEYS  1 streams (zset by time)  2 the last word of each hub: its number, when it came, and the streams (hash)
-- ARGV  1 hub  2 number of this word  3 how many streams may stay  4 how long a stream lives, in ms  5 channel
--       6 the person as JSON  7 until when this counts, in ms, or 0 for ever
--       8 since when others were asked, in ms; 0 when they may be asked now, -1 when this is an answer  9 channel to ask by
--       10 when it was looked which hubs are alive, in ms
--       11 how many streams follow, then each stream and its time; then every hub that is alive
-- Gives since when others are asked, empty when they are not, and those of the streams that were replaced; nothing when this
-- came too late.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
-- Who said it has given up waiting, and nobody is to make room for one that is not there.
if tonumber(ARGV[7]) > 0 and now > tonumber(ARGV[7]) then return false end

local own, times = {}, {}
for at = 12, 11 + 2 * ARGV[11], 2 do
  own[#own + 1] = ARGV[at]
  times[ARGV[at]] = ARGV[at + 1]
end
local function replaced(asked)
  local gone = { asked or '' }
  for _, stream in ipairs(own) do
    if not redis.call('ZSCORE', KEYS[1], stream) then gone[#gone + 1] = stream end
  end
  return gone
end

local alive, held = { [ARGV[1]] = true }, {}
local asked, silent = tonumber(ARGV[8]), false
for at = 12 + 2 * ARGV[11], #ARGV do alive[ARGV[at]] = true end
local words = redis.call('HGETALL', KEYS[2])
for at = 1, #words, 2 do
  local hub = words[at]
  local number, came, streams = string.match(words[at + 1], '^(%d+) (%d+)(.*)$')
  if hub == ARGV[1] then
    -- A newer word, which had all of these that are still there, was faster.
    if tonumber(number) > tonumber(ARGV[2]) then return replaced() end
  elseif not alive[hub] and ARGV[10] - came > 3000 then
    -- It was gone long after it said this. One that has come since, or come back, may not be known everywhere yet: not for as
    -- long as Redis itself was away.
    redis.call('HDEL', KEYS[2], hub)
  elseif streams == '' and now - came > 10000 then
    -- It was kept for its number only, and no older word comes so late.
    redis.call('HDEL', KEYS[2], hub)
  elseif asked > 0 and tonumber(came) < asked then
    -- It has not answered. If it is only slow, it says all this again.
    redis.call('HDEL', KEYS[2], hub)
  else
    silent = silent or (streams ~= '' and now - came > 500)
    for stream in string.gmatch(streams, '%S+') do held[stream] = true end
  end
end

local said = string.format('%s %.0f', ARGV[2], now)
for _, stream in ipairs(own) do said = said .. ' ' .. stream end
redis.call('HSET', KEYS[2], ARGV[1], said)
local known = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for at = 1, #known, 2 do
  local lives = held[known[at]] and now - known[at + 1] <= tonumber(ARGV[4])
  if not lives and not times[known[at]] then redis.call('ZREM', KEYS[1], known[at]) end
end
for _, stream in ipairs(own) do redis.call('ZADD', KEYS[1], times[stream], stream) end

local count = redis.call('ZCARD', KEYS[1])
local doubt = count > tonumber(ARGV[3]) and asked <= 0 and silent
if doubt and asked == 0 then redis.call('PUBLISH', ARGV[9], ARGV[6]) end
if count > tonumber(ARGV[3]) and not doubt then
  local oldest = redis.call('ZPOPMIN', KEYS[1], count - ARGV[3])
  for at = 1, #oldest, 2 do
    redis.call('PUBLISH', ARGV[5], '{"memberId":' .. ARGV[6] .. ',"connectionId":"' .. oldest[at] .. '"}')
  end
end
local life = count > 0 and 2 * ARGV[4] or 10000
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', life))
redis.call('PEXPIRE', KEYS[2], string.format('%.0f', life))
return replaced(doubt and asked == 0 and string.format('%.0f', now) or nil)
