-- Appends events to one subject, in order. For each event the script checks the idempotency key, stores the event,
-- stores the answer under the key, adds the follow-up record and publishes the event: all of these steps or none. Every
-- publish runs this script, so code that few events need is in separate functions.
--
-- KEYS  1 stream  2 answers by idempotency key (hash)  3 idempotency keys by expiry (zset)  4 follow-up records (list)
--       5 last id of a deleted log  6 audience by instance (hash)  7 membership version
-- ARGV  1 time of the hub in ms  2 instance  3 audience of this instance  4 bus channel
--       5 number of entries to keep  6 lifetime of an idempotency key in ms
--       7 time in ms at which the subject was marked in the index of follow-ups, or '' without follow-ups
--       8 channel that announces follow-ups  9 name of the subject on that channel
--       then for each event:
--       1 type  2 payload  3 publisher or ''  4 idempotency key or ''  5 digest  6 digest of an earlier version or ''
--       7 traceparent or ''  8, 9, 10 the follow-up record before its id, between id and time, after its time, or ''
--       11 membership version that the event was made for, or ''
-- Returns the audience, then for each event 'stored' and its id, 'again' and the stored answer, 'conflict' and '', or
-- 'stale' and ''. Returns 'unmarked' instead if the mark is too old. After a stale event no later event of the call is
-- stored, so that the order is kept when the caller appends the stale event again.
local call, format, match = redis.call, string.format, string.match
local stream, ms = KEYS[1], ARGV[1]
local now = tonumber(ms)
-- The index of subjects with follow-ups may be on another server of a Cluster. The caller marks the subject in
-- the index before this script runs. The mark of a subject without records is removed later, so the inbox
-- would not find the record of an append that runs too long after the mark.
if ARGV[7] ~= '' then
  local clock = call('TIME')
  if clock[1] * 1000 + clock[2] / 1000 - ARGV[7] > 30000 then return 'unmarked' end
end

local previous, number
local newest = call('XREVRANGE', stream, '+', '-', 'COUNT', 1)[1]
if newest then
  local fields = newest[2]
  previous = newest[1]
  -- This script writes the number as the fifth field. Entries of other programs have no number.
  if fields[9] == 'number' then number = tonumber(fields[10]) end
else
  previous, number = call('GET', KEYS[5]) or '0-0', 0
end

local audience = tonumber(ARGV[3])
local reported = call('HGETALL', KEYS[6])
for at = 1, #reported, 2 do
  if reported[at] ~= ARGV[2] then
    local count, ends = match(reported[at + 1], '^(%d+) (%d+)$')
    if tonumber(ends) > now then audience = audience + count end
  end
end

local function find_answer(key, digest, earlier_digest)
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
  -- note_keys.lua lists the stored keys, and drop_keys.lua removes the listed ones. The keys removed here
  -- expired one lifetime ago and are not listed, for example because their hub was killed before.
  for _, expired in ipairs(call('ZRANGEBYSCORE', KEYS[3], '-inf', format('%.0f', now - ARGV[6]), 'LIMIT', 0, 4)) do
    call('HDEL', KEYS[2], expired)
    call('ZREM', KEYS[3], expired)
  end
  local life = format('%.0f', 2 * ARGV[6])
  call('PEXPIRE', KEYS[2], life)
  call('PEXPIRE', KEYS[3], life)
end

local answers, count, is_stale = {audience}, 1, false
for at = 10, #ARGV, 11 do
  local kind, payload, publisher, key = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local outcome, answer
  if key ~= '' then outcome, answer = find_answer(key, ARGV[at + 4], ARGV[at + 5]) end
  if not outcome then
    local version = ARGV[at + 10]
    is_stale = is_stale or version ~= '' and call('GET', KEYS[7]) ~= version
    if is_stale then outcome, answer = 'stale', '' end
  end
  if not outcome then
    -- The id is the time of the hub, or the successor of the last id if that id is not older, because clocks of hubs
    -- differ and may be set back: ids only grow.
    local id = ms .. '-0'
    local last, sequence = match(previous, '^(%d+)-(%d+)$')
    if tonumber(last) >= now then id = last .. '-' .. format('%.0f', sequence + 1) end
    local number_text, trace = '', ARGV[at + 6]
    local fields = {'type', kind, 'payload', payload, 'publisher_id', publisher, 'timestamp', ms}
    if number then
      number = number + 1
      number_text = format('%.0f', number)
      fields[9], fields[10] = 'number', number_text
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
      -- Announced only if the list was empty: after an announcement the inbox reads the list until it is empty.
      if waiting == 1 then call('PUBLISH', ARGV[8], ARGV[9]) end
    end
    call('SPUBLISH', ARGV[4], '1 ' .. id .. ' ' .. previous .. ' ' .. number_text .. ' ' .. ms .. ' ' .. kind .. ' '
      .. publisher .. trace .. '\n' .. payload)
    previous, outcome, answer = id, 'stored', id
  end
  answers[count + 1], answers[count + 2] = outcome, answer
  count = count + 2
end
-- Trims once per min(keep, 64) events, and on every call if the entries have no numbers.
local keep = tonumber(ARGV[5])
if not number or number % math.min(keep, 64) < (#ARGV - 9) / 11 then
  call('XTRIM', stream, 'MAXLEN', keep)
end
return answers
