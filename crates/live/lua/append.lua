-- Appends events to one subject, in order. Of each: checks its key, stores it, keeps its answer, writes down who is to
-- be told, and publishes it; all of it or nothing. Every publish runs this, so what few events need is a function apart.
--
-- KEYS  1 stream  2 answers by key (hash)  3 keys by expiry (zset)  4 follow-ups (list)  5 last id of a deleted log
--       6 streams that listen, by instance (hash)  7 version of the membership
-- ARGV  1 the hub's time in ms  2 its instance  3 its own streams that listen  4 channel
--       5 entries to keep  6 life of a key in ms  7 when the index was marked, in ms, or ''
--       8 channel for news of follow-ups  9 the subject, as it is named there
--       then for each event:
--       1 type  2 payload  3 publisher or ''  4 key or ''  5 digest  6 what earlier versions stored for it, or ''
--       7 trace or ''  8, 9, 10 the follow-up record around its id and its time, or ''
--       11 the version of the membership that it was made for, or ''
-- Gives the audience, then for each event 'stored' and its id, 'again' and its kept answer, or 'conflict' or 'stale' and '';
-- or 'unmarked' for all. Behind an event that is stale nothing is stored, so that it is not overtaken when it comes again.
local call, format, match = redis.call, string.format, string.match
local stream, ms = KEYS[1], ARGV[1]
local now = tonumber(ms)
-- The index of subjects with follow-ups is elsewhere. It is written before, and cleared of what is old: an append
-- that comes too late after its mark would never be found.
if ARGV[7] ~= '' then
  local clock = call('TIME')
  if clock[1] * 1000 + clock[2] / 1000 - ARGV[7] > 30000 then return 'unmarked' end
end

local previous, number
local newest = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
if newest then
  local fields = newest[2]
  previous = newest[1]
  -- Where this script writes it; an entry that another program wrote has none.
  if fields[9] == 'number' then number = tonumber(fields[10]) end
else
  previous, number = call('GET', KEYS[5]) or '0-0', 0
end

local audience = tonumber(ARGV[3])
local listening = call('HGETALL', KEYS[6])
for at = 1, #listening, 2 do
  if listening[at] ~= ARGV[2] then
    local count, ends = match(listening[at + 1], '^(%d+) (%d+)$')
    if tonumber(ends) > now then audience = audience + count end
  end
end

local function answer_kept(key, digest, earlier_digest)
  local kept = call('HGET', KEYS[2], key)
  if not kept then return end
  local ends, answer, known = match(kept, '^(%d+) (%S+ %d+ %d+) (.*)$')
  if tonumber(ends) <= now then return end
  if known ~= digest and known ~= earlier_digest then return 'conflict', '' end
  return 'again', answer
end

local function keep_answer(key, digest, id)
  local ends = format('%.0f', now + ARGV[6])
  call('HSET', KEYS[2], key, table.concat({ends, id, ms, audience, digest}, ' '))
  call('ZADD', KEYS[3], ends, key)
  -- Keys that a note names have gone by then (drop_keys.lua); these were never noted, because their hub was killed.
  for _, gone in ipairs(call('ZRANGEBYSCORE', KEYS[3], '-inf', format('%.0f', now - ARGV[6]), 'LIMIT', 0, 4)) do
    call('HDEL', KEYS[2], gone)
    call('ZREM', KEYS[3], gone)
  end
  local life = format('%.0f', 2 * ARGV[6])
  call('PEXPIRE', KEYS[2], life)
  call('PEXPIRE', KEYS[3], life)
end

local answers, count, is_stale = {audience}, 1, false
for at = 10, #ARGV, 11 do
  local kind, payload, publisher, key = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local outcome, answer
  if key ~= '' then outcome, answer = answer_kept(key, ARGV[at + 4], ARGV[at + 5]) end
  if not outcome then
    local version = ARGV[at + 10]
    is_stale = is_stale or version ~= '' and call('GET', KEYS[7]) ~= version
    if is_stale then outcome, answer = 'stale', '' end
  end
  if not outcome then
    -- The time, or the next number within it when the clocks of hubs differ or one went back: ids only grow.
    local id = ms .. '-0'
    local last, sequence = match(previous, '^(%d+)-(%d+)$')
    if tonumber(last) >= now then id = last .. '-' .. format('%.0f', sequence + 1) end
    local numbered, trace = '', ARGV[at + 6]
    local fields = {'type', kind, 'payload', payload, 'publisher_id', publisher, 'timestamp', ms}
    if number then
      number = number + 1
      numbered = format('%.0f', number)
      fields[9], fields[10] = 'number', numbered
    end
    if trace ~= '' then
      fields[#fields + 1] = 'traceparent'
      fields[#fields + 1] = trace
      trace = ' ' .. trace
    end
    call('XADD', stream, id, unpack(fields))
    if key ~= '' then keep_answer(key, ARGV[at + 4], id) end
    if ARGV[at + 7] ~= '' then
      local waiting = call('RPUSH', KEYS[4], ARGV[at + 7] .. id .. ARGV[at + 8] .. ms .. ARGV[at + 9])
      -- Who has found others here looks again until there are none.
      if waiting == 1 then call('PUBLISH', ARGV[8], ARGV[9]) end
    end
    call('SPUBLISH', ARGV[4], '1 ' .. id .. ' ' .. previous .. ' ' .. numbered .. ' ' .. ms .. ' ' .. kind .. ' '
      .. publisher .. trace .. '\n' .. payload)
    previous, outcome, answer = id, 'stored', id
  end
  answers[count + 1], answers[count + 2] = outcome, answer
  count = count + 2
end
-- Not every time; and every time when nobody counts.
local keep = tonumber(ARGV[5])
if not number or number % math.min(keep, 64) < (#ARGV - 9) / 11 then
  call('XTRIM', stream, 'MAXLEN', keep)
end
return answers
