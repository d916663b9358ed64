-- Takes an instance's report of which connections of a person it holds: all of these, and no others. Those that counted
-- before are put back with the time that they have had from the start, so that none grows younger by being forgotten. New
-- ones get the time of now. Then either new ones beyond the limit are refused, or the oldest beyond it are taken out, which
-- is told to whoever holds them. An instance that was killed a moment ago is still in the fleet: before anybody is taken out
-- because of its connections, it is asked whether it has them.
--
-- KEYS  1 connections (zset by time, in ms)
--       2 the last report of each instance: its number, when it came, and the connections (hash)
-- ARGV  1 instance  2 number of this report  3 how many connections may stay  4 'refuse' or 'replace'
--       5 how long a connection lives, in ms, or 0 for any time  6 life of the keys in ms
--       7 channel to tell who is taken out  8 the person as JSON  9 until when new ones wait for this, in ms; 0 if there are none
--       10 since when others were asked, in ms; 0 when they may be asked now, -1 when this is an answer  11 channel to ask by
--       12 when it was looked which instances are alive, in ms
--       13 how many connections follow, then each with its time, '' for a new one; then every instance that is alive
-- Gives {now in ms} when this came too late; else {now, since when others are asked or '', 1 if there was a report of this
-- instance or 0, then for each connection the time with which it counts, or ''}.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local now_ms = string.format('%.0f', now)
-- Who waited for it has given up, and nobody is to make room for a connection that is not there.
if tonumber(ARGV[9]) > 0 and now > tonumber(ARGV[9]) then return { now_ms } end

local limit, replaces = tonumber(ARGV[3]), ARGV[4] == 'replace'
local own, times = {}, {}
for at = 14, 13 + 2 * ARGV[13], 2 do
  own[#own + 1] = ARGV[at]
  times[ARGV[at]] = ARGV[at + 1]
end
local function answer(asked, was_known)
  local told = { now_ms, asked, was_known }
  for _, connection in ipairs(own) do told[#told + 1] = redis.call('ZSCORE', KEYS[1], connection) or '' end
  return told
end

local alive, held, judged = { [ARGV[1]] = true }, {}, {}
local asked, silent, was_known = tonumber(ARGV[10]), false, 0
for at = 14 + 2 * ARGV[13], #ARGV do alive[ARGV[at]] = true end
local reports = redis.call('HGETALL', KEYS[2])
for at = 1, #reports, 2 do
  local instance = reports[at]
  local number, came, connections = string.match(reports[at + 1], '^(%d+) (%d+)(.*)$')
  if instance == ARGV[1] then
    -- A newer report, which had all of these that are still there, was faster.
    if tonumber(number) > tonumber(ARGV[2]) then return answer('', 1) end
    was_known = 1
    for connection in string.gmatch(connections, '%S+') do judged[connection] = true end
  elseif not alive[instance] and ARGV[12] - came > 3000 then
    -- It was gone long after this report. One that has come since, or come back, may not be known everywhere yet: not for
    -- as long as Redis itself was away.
    redis.call('HDEL', KEYS[2], instance)
  elseif connections == '' and now - came > 10000 then
    -- It was kept for its number only, and no older report comes so late.
    redis.call('HDEL', KEYS[2], instance)
  elseif asked > 0 and tonumber(came) < asked then
    -- It has not answered. If it is only slow, it reports all this again.
    redis.call('HDEL', KEYS[2], instance)
  else
    silent = silent or (connections ~= '' and now - came > 500)
    for connection in string.gmatch(connections, '%S+') do held[connection] = true end
  end
end

local known = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for at = 1, #known, 2 do
  local is_old = ARGV[5] ~= '0' and now - known[at + 1] > tonumber(ARGV[5])
  if not times[known[at]] and (is_old or not held[known[at]]) then redis.call('ZREM', KEYS[1], known[at]) end
end
for _, connection in ipairs(own) do
  if times[connection] ~= '' then redis.call('ZADD', KEYS[1], times[connection], connection) end
end
local said = string.format('%s %s', ARGV[2], now_ms)
for _, connection in ipairs(own) do
  said = said .. ' ' .. connection
  -- One that the last report had, too, was let in then, or refused, and may have been taken out since.
  local is_new = times[connection] == '' and not judged[connection]
  if is_new and (replaces or redis.call('ZCARD', KEYS[1]) < limit) then
    -- Later than all others, also after the clock was set back.
    local newest = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0)
    redis.call('ZADD', KEYS[1], string.format('%.3f', math.max(now, newest + 0.001)), connection)
  end
end
redis.call('HSET', KEYS[2], ARGV[1], said)

local count = redis.call('ZCARD', KEYS[1])
local excess = replaces and count - limit or 0
local is_doubted = excess > 0 and asked <= 0 and silent
if is_doubted and asked == 0 then redis.call('PUBLISH', ARGV[11], ARGV[8]) end
if excess > 0 and not is_doubted then
  local oldest = redis.call('ZPOPMIN', KEYS[1], excess)
  for at = 1, #oldest, 2 do
    redis.call('PUBLISH', ARGV[7], '{"memberId":' .. ARGV[8] .. ',"connectionId":"' .. oldest[at] .. '"}')
  end
end
local life = count > 0 and ARGV[6] or 10000
redis.call('PEXPIRE', KEYS[1], life)
redis.call('PEXPIRE', KEYS[2], life)
return answer(is_doubted and asked == 0 and now_ms or '', was_known)
