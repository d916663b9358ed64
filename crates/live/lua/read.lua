-- Reads a page of a subject's log after a position.
--
-- KEYS  1 stream  2 last id of a deleted log
-- ARGV  1 position  2 maximum number of entries  3 maximum bytes of payloads; at least one entry is returned
-- Returns {start, oldest, newest, last id of a deleted log or '', more, entries}: start is 'known', 'trimmed' or
-- 'unknown'; oldest and newest are {id, fields} as in entries, or false; more is 1 if entries follow the page.
local position, max_entries, max_bytes = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local deleted_last = redis.call('GET', KEYS[2]) or ''

local function field(entry, name)
  for at = 1, #entry[2], 2 do
    if entry[2][at] == name then return entry[2][at + 1] end
  end
end

local function is_before(one, other)
  local ms, sequence = string.match(one, '^(%d+)-(%d+)$')
  local other_ms, other_sequence = string.match(other, '^(%d+)-(%d+)$')
  -- Compared as text: a Lua number cannot represent every 64-bit id.
  local function less(a, b) return #a < #b or (#a == #b and a < b) end
  return less(ms, other_ms) or (ms == other_ms and less(sequence, other_sequence))
end

local start = 'unknown'
if position == '0-0' then
  start = 'known'
elseif not oldest then
  if position == '0-1' and deleted_last == '' then start = 'known' end
elseif #redis.call('XRANGE', KEYS[1], position, position, 'COUNT', 1) == 1 then
  start = 'known'
elseif position == '0-1' and field(oldest, 'number') == '1' then
  start = 'known'
elseif is_before(position, oldest[1]) then
  start = 'trimmed'
end

local entries, size, more = {}, 0, 0
if start ~= 'unknown' then
  -- Starts with few entries, because entries may be large and those beyond max_bytes are discarded.
  local from, count = position, 4
  while more == 0 do
    local page = redis.call('XRANGE', KEYS[1], '(' .. from, '+', 'COUNT', count)
    for _, entry in ipairs(page) do
      size = size + #(field(entry, 'payload') or '')
      if #entries == max_entries or (size > max_bytes and #entries > 0) then
        more = 1
        break
      end
      entries[#entries + 1] = entry
    end
    if #page < count then break end
    from = page[count][1]
    count = math.min(count * 2, 64)
  end
end
return {start, oldest or false, newest or false, deleted_last, more, entries}
