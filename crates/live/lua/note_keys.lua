-- Adds notes of stored idempotency keys (expiry, subject, key) to a list, and removes the notes of keys that
-- have to be removed: the oldest notes above the limit, and those of expired keys.
--
-- KEYS  1 notes (list), oldest first
-- ARGV  1 maximum number of notes  2 time in ms: notes of keys that expired until then are removed
--       3 lifetime of the list in ms  then the notes, each beginning with the expiry of its key in ms
-- Returns the removed notes.
local list, expired_before = KEYS[1], tonumber(ARGV[2])
for at = 4, #ARGV do redis.call('RPUSH', list, ARGV[at]) end
redis.call('PEXPIRE', list, ARGV[3])
local excess = redis.call('LLEN', list) - ARGV[1]
-- At most about 1,000 notes per call, so that a lowered limit does not block Redis for long.
local removed = excess > 0 and redis.call('LPOP', list, math.min(excess, 1000)) or {}
while #removed < 1000 do
  local oldest = redis.call('LINDEX', list, 0)
  if not oldest or tonumber(string.match(oldest, '^%d+')) > expired_before then break end
  removed[#removed + 1] = redis.call('LPOP', list)
end
return removed
