-- Looks for the follow-up record of one event. They are in the order of their ids, so few of them are looked at.
--
-- KEYS  1 follow-ups (list)
-- ARGV  1, 2 the two numbers of the event's id
-- Gives the record, or nothing.
local ms, seq = tonumber(ARGV[1]), tonumber(ARGV[2])
local first, last = 0, redis.call('LLEN', KEYS[1]) - 1
while first <= last do
  local middle = math.floor((first + last) / 2)
  local record = redis.call('LINDEX', KEYS[1], middle)
  -- Its own id is the first that is named so: what the publisher wrote comes later.
  local its_ms, its_seq = string.match(record, '"streamId":"(%d+)%-(%d+)"')
  if not its_ms then return end
  its_ms, its_seq = tonumber(its_ms), tonumber(its_seq)
  if its_ms == ms and its_seq == seq then return record end
  if its_ms < ms or its_ms == ms and its_seq < seq then first = middle + 1 else last = middle - 1 end
end
