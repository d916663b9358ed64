-- Finds the follow-up record of one event by binary search: the records are in the order of their event ids.
--
-- KEYS  1 follow-up records (list)
-- ARGV  1 milliseconds and 2 sequence number of the event's id
-- Returns the record, or nil if no record has this id.
local ms, seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local first, last = 0, redis.call('LLEN', KEYS[1]) - 1
while first <= last do
  local middle = math.floor((first + last) / 2)
  local record = redis.call('LINDEX', KEYS[1], middle)
  -- The first streamId is the record's own; the data of the publisher, which follow it, may contain another one.
  local record_ms, record_seq = string.match(record, '"streamId":"(%d+)%-(%d+)"')
  if not record_ms then return end
  record_ms, record_seq = tonumber(record_ms), tonumber(record_seq)
  if record_ms == ms and record_seq == seq then return record end
  if record_ms < ms or record_ms == ms and record_seq < seq then first = middle + 1 else last = middle - 1 end
end
