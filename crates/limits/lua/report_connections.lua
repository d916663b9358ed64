-- Processes the report of one instance: all connections of a person that the instance holds. A connection that counted
-- before is restored with its original time, so that it keeps its age after Redis has lost it. A new one gets the
-- current time. Under 'refuse', new connections beyond the limit do not count. Under 'replace', the oldest connections
-- beyond the limit are removed, and a message tells the instances that hold them. An instance that was killed a moment
-- ago is still in the fleet: before the connections of a silent instance cause a removal, all instances are asked for a
-- report.
--
-- KEYS  1 connections that count (zset by time in ms)
--       2 the last report of each instance: its number, the time when it arrived in ms, and its connections (hash)
-- ARGV  1 instance  2 number of this report  3 connection limit  4 'refuse' or 'replace'
--       5 maximum age of a connection in ms, or 0  6 expiry of the keys in ms
--       7 channel for removed connections  8 the person as JSON
--       9 time in ms after which the caller of a new connection has given up; 0 without new ones
--       10 time in ms at which the instances were asked; 0 if this report may ask them; -1 if this is an answer
--       11 channel for questions  12 time in ms at which the list of live instances was read
--       13 number of connections; then each connection and its time ('' for a new one); then all live instances
-- Returns {now in ms} when this report came too late. Else {now, the time at which the instances are asked now or '',
-- 1 if an earlier report of this instance is known, else 0, then for each connection the time with which it
-- counts or ''}.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + clock[2] / 1000
local now_ms = string.format('%.0f', now)
-- The caller of a new connection has given up, so the connection must not replace another one.
if tonumber(ARGV[9]) > 0 and now > tonumber(ARGV[9]) then return { now_ms } end

local limit, replaces = tonumber(ARGV[3]), ARGV[4] == 'replace'
local own, times = {}, {}
for at = 14, 13 + 2 * ARGV[13], 2 do
  own[#own + 1] = ARGV[at]
  times[ARGV[at]] = ARGV[at + 1]
end
local function answer(asked, was_known)
  local result = { now_ms, asked, was_known }
  for _, connection in ipairs(own) do result[#result + 1] = redis.call('ZSCORE', KEYS[1], connection) or '' end
  return result
end

-- held: connections of other instances. decided: connections of this instance's last report.
local alive, held, decided = { [ARGV[1]] = true }, {}, {}
local asked, has_silent, was_known = tonumber(ARGV[10]), false, 0
for at = 14 + 2 * ARGV[13], #ARGV do alive[ARGV[at]] = true end
local reports = redis.call('HGETALL', KEYS[2])
for at = 1, #reports, 2 do
  local instance = reports[at]
  local number, arrived, connections = string.match(reports[at + 1], '^(%d+) (%d+)(.*)$')
  if instance == ARGV[1] then
    -- A newer report arrived before this one. It had all connections that still exist, so this report changes nothing.
    if tonumber(number) > tonumber(ARGV[2]) then return answer('', 1) end
    was_known = 1
    for connection in string.gmatch(connections, '%S+') do decided[connection] = true end
  elseif not alive[instance] and ARGV[12] - arrived > 3000 then
    -- The instance was not alive more than 3 seconds after its report. Within this time an instance that has joined, or
    -- joined again after an outage of Redis, may be missing from the list.
    redis.call('HDEL', KEYS[2], instance)
  elseif connections == '' and now - arrived > 10000 then
    -- An empty report is kept only for its number. After 10 seconds no older report of the instance can arrive.
    redis.call('HDEL', KEYS[2], instance)
  elseif asked > 0 and tonumber(arrived) < asked then
    -- The instance did not answer. If it is only slow, its next report restores its connections.
    redis.call('HDEL', KEYS[2], instance)
  else
    has_silent = has_silent or (connections ~= '' and now - arrived > 500)
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
local report = string.format('%s %s', ARGV[2], now_ms)
for _, connection in ipairs(own) do
  report = report .. ' ' .. connection
  -- A connection that was also in the last report was admitted or refused then, and may have been removed since.
  local is_new = times[connection] == '' and not decided[connection]
  if is_new and (replaces or redis.call('ZCARD', KEYS[1]) < limit) then
    -- The time is later than that of every other connection, even after the clock was set back.
    local newest = tonumber(redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2] or 0)
    redis.call('ZADD', KEYS[1], string.format('%.3f', math.max(now, newest + 0.001)), connection)
  end
end
redis.call('HSET', KEYS[2], ARGV[1], report)

local count = redis.call('ZCARD', KEYS[1])
local excess = replaces and count - limit or 0
local needs_answers = excess > 0 and asked <= 0 and has_silent
if needs_answers and asked == 0 then redis.call('PUBLISH', ARGV[11], ARGV[8]) end
if excess > 0 and not needs_answers then
  local oldest = redis.call('ZPOPMIN', KEYS[1], excess)
  for at = 1, #oldest, 2 do
    redis.call('PUBLISH', ARGV[7], '{"memberId":' .. ARGV[8] .. ',"connectionId":"' .. oldest[at] .. '"}')
  end
end
local ttl = count > 0 and ARGV[6] or 10000
redis.call('PEXPIRE', KEYS[1], ttl)
redis.call('PEXPIRE', KEYS[2], ttl)
return answer(needs_answers and asked == 0 and now_ms or '', was_known)
