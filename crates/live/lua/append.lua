-- Appends events to one subject, in order. Of each: checks its key, stores it, keeps its answer, writes down who is to
-- be told, and publishes it; all of it or nothing.
--
-- KEYS  1 stream  2 answers by key (hash)  3 keys by expiry (zset)  4 follow-ups (list)  5 last id of a deleted log
--       6 streams that listen, by instance (hash)
-- ARGV  1 the hub's time in ms  2 its instance  3 its own streams that listen  4 channel
--       5 entries to keep  6 keys to keep  7 life of a key in ms  8 when the index was marked, in ms, or ''
--       then for each event:
--       1 type  2 payload  3 publisher or ''  4 key or ''  5 digest
--       6, 7, 8 the follow-up record around its id and its time, or ''
-- Gives for each event {'stored', id, ms, audience}, {'again', id, ms, audience} or {'conflict'}; or 'unmarked' for all.
local ms = ARGV[1]
local now = tonumber(ms)
-- The index of subjects with follow-ups is elsewhere. It is written before, and cleared of what is old: an append
-- that comes too late after its mark would never be found.
if ARGV[8] ~= '' then
  local clock = redis.call('TIME')
  if clock[1] * 1000 + clock[2] / 1000 - ARGV[8] > 30000 then return 'unmarked' end
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

local audience = tonumber(ARGV[3])
local listening = redis.call('HGETALL', KEYS[6])
for at = 1, #listening, 2 do
  local count, ends = string.match(listening[at + 1], '^(%d+) (%d+)$')
  if listening[at] ~= ARGV[2] and tonumber(ends) > now then audience = audience + count end
end
audience = string.format('%.0f', audience)

local function answer_kept(key, digest)
  local kept = redis.call('HGET', KEYS[2], key)
  if not kept then return end
  local ends, id, at, told, known = string.match(kept, '^(%d+) (%S+) (%d+) (%d+) (.*)$')
  if tonumber(ends) <= now then return end
  if known ~= digest then return {'conflict'} end
  return {'again', id, at, told}
end

local function keep_answer(key, digest, id)
  local ends = string.format('%.0f', now + ARGV[7])
  redis.call('HSET', KEYS[2], key, table.concat({ends, id, ms, audience, digest}, ' '))
  redis.call('ZADD', KEYS[3], ends, key)
  -- A life longer than promised, for hubs whose clocks differ or went back.
  local old = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now - ARGV[7]), 'LIMIT', 0, 4)
  if #old == 0 and redis.call('ZCARD', KEYS[3]) > tonumber(ARGV[6]) then
    old = {redis.call('ZRANGE', KEYS[3], 0, 0)[1]}
  end
  for _, gone in ipairs(old) do
    redis.call('HDEL', KEYS[2], gone)
    redis.call('ZREM', KEYS[3], gone)
  end
  local life = string.format('%.0f', 2 * ARGV[7])
  redis.call('PEXPIRE', KEYS[2], life)
  redis.call('PEXPIRE', KEYS[3], life)
end

local function append(at)
  local kind, payload, publisher, key, digest = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4]
  if key ~= '' then
    local kept = answer_kept(key, digest)
    if kept then return kept end
  end
  -- The time, or the next number within it when the clocks of hubs differ or one went back: ids only grow.
  local id = ms .. '-0'
  local last, sequence = string.match(previous, '^(%d+)-(%d+)$')
  if tonumber(last) >= now then id = last .. '-' .. string.format('%.0f', sequence + 1) end
  local fields = {'type', kind, 'payload', payload, 'publisher_id', publisher, 'timestamp', ms}
  local numbered = ''
  if number then
    number = number + 1
    numbered = string.format('%.0f', number)
    fields[9], fields[10] = 'number', numbered
  end
  redis.call('XADD', KEYS[1], id, unpack(fields))
  if key ~= '' then keep_answer(key, digest, id) end
  if ARGV[at + 5] ~= '' then
    redis.call('RPUSH', KEYS[4], table.concat({ARGV[at + 5], id, ARGV[at + 6], ms, ARGV[at + 7]}))
  end
  local head = table.concat({'1', id, previous, numbered, ms, kind, publisher}, ' ')
  redis.call('SPUBLISH', ARGV[4], head .. '\n' .. payload)
  previous = id
  return {'stored', id, ms, audience}
end

local answers = {}
for at = 9, #ARGV, 8 do
  answers[#answers + 1] = append(at)
end
local keep = tonumber(ARGV[5])
if redis.call('XLEN', KEYS[1]) >= keep + math.min(keep, 64) then
  redis.call('XTRIM', KEYS[1], 'MAXLEN', keep)
end
return answers
