-- Appends one event to a subject: checks its key, stores it, keeps its answer, writes down who is to be told, and
-- publishes it. All of it or nothing.
--
-- KEYS  1 stream  2 answers by key (hash)  3 keys by expiry (zset)  4 follow-ups (list)  5 last id of a deleted log
--       6 streams that listen, by instance (hash)
-- ARGV  1 type  2 payload  3 publisher or ''  4 entries to keep
--       5 key or ''  6 digest  7 keys to keep  8 life of a key in ms
--       9, 10, 11 the follow-up record around its id and its time, or ''  12 when the index was marked, in ms
--      13 channel  14 the hub's time in ms  15 its instance  16 its own streams that listen
-- Gives {'stored', id, ms, audience}, {'again', id, ms, audience}, {'conflict'} or {'unmarked'}.
local ms = ARGV[14]
local now = tonumber(ms)

if ARGV[5] ~= '' then
  local kept = redis.call('HGET', KEYS[2], ARGV[5])
  if kept then
    local ends, id, at, audience, digest = string.match(kept, '^(%d+) (%S+) (%d+) (%d+) (.*)$')
    if tonumber(ends) > now then
      if digest ~= ARGV[6] then return {'conflict'} end
      return {'again', id, at, audience}
    end
  end
end
-- The index of subjects with follow-ups is elsewhere. It is written before, and cleared of what is old: an append
-- that comes too late after its mark would never be found.
if ARGV[9] ~= '' then
  local clock = redis.call('TIME')
  if clock[1] * 1000 + clock[2] / 1000 - ARGV[12] > 30000 then return {'unmarked'} end
end

local previous, number = '0-0', 0
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if newest then
  previous, number = newest[1], nil
  for at = 1, #newest[2], 2 do
    if newest[2][at] == 'number' then number = tonumber(newest[2][at + 1]) end
  end
else
  previous = redis.call('GET', KEYS[5]) or previous
end
-- The time, or the next number within it when the clocks of hubs differ or one went back: ids only grow.
local id = ms .. '-0'
local last, sequence = string.match(previous, '^(%d+)-(%d+)$')
if tonumber(last) >= now then id = last .. '-' .. string.format('%.0f', sequence + 1) end
local fields = {'type', ARGV[1], 'payload', ARGV[2], 'publisher_id', ARGV[3], 'timestamp', ms}
local numbered = ''
if number then
  numbered = string.format('%.0f', number + 1)
  fields[9], fields[10] = 'number', numbered
end
redis.call('XADD', KEYS[1], id, unpack(fields))

local audience = tonumber(ARGV[16])
local listening = redis.call('HGETALL', KEYS[6])
for at = 1, #listening, 2 do
  local count, ends = string.match(listening[at + 1], '^(%d+) (%d+)$')
  if listening[at] ~= ARGV[15] and tonumber(ends) > now then audience = audience + count end
end
audience = string.format('%.0f', audience)

if ARGV[5] ~= '' then
  local ends = string.format('%.0f', now + ARGV[8])
  redis.call('HSET', KEYS[2], ARGV[5], table.concat({ends, id, ms, audience, ARGV[6]}, ' '))
  redis.call('ZADD', KEYS[3], ends, ARGV[5])
  local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ms, 'LIMIT', 0, 4)
  if #old == 0 and redis.call('ZCARD', KEYS[3]) > tonumber(ARGV[7]) then
    old = {redis.call('ZRANGE', KEYS[3], 0, 0)[1]}
  end
  for _, key in ipairs(old) do
    redis.call('HDEL', KEYS[2], key)
    redis.call('ZREM', KEYS[3], key)
  end
  redis.call('PEXPIRE', KEYS[2], ARGV[8])
  redis.call('PEXPIRE', KEYS[3], ARGV[8])
end
if ARGV[9] ~= '' then
  redis.call('RPUSH', KEYS[4], table.concat({ARGV[9], id, ARGV[10], ms, ARGV[11]}))
end
local keep = tonumber(ARGV[4])
if redis.call('XLEN', KEYS[1]) >= keep + math.min(keep, 64) then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', keep)
end
local head = table.concat({'1', id, previous, numbered, ms, ARGV[1], ARGV[3]}, ' ')
redis.call('SPUBLISH', ARGV[13], head .. '\n' .. ARGV[2])
return {'stored', id, ms, audience}
