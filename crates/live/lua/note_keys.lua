-- Notes idempotency keys in the order in which they were stored, and takes out the notes of those that have to go: the oldest
-- past the bound, and those whose life is over.
--
-- KEYS  1 notes (list)
-- ARGV  1 notes to keep  2 a key whose life ended before this time, in ms, goes  3 life of the list in ms
--       then the notes, each beginning with the time at which its key's life ends
-- Gives the notes that were taken out.
local list, ended = KEYS[1], tonumber(ARGV[2])
for at = 4, #ARGV do redis.call('RPUSH', list, ARGV[at]) end
redis.call('PEXPIRE', list, ARGV[3])
local excess = redis.call('LLEN', list) - ARGV[1]
-- Not all at once when the bound was lowered: others want their turn.
local taken = excess > 0 and redis.call('LPOP', list, math.min(excess, 1000)) or {}
while #taken < 1000 do
  local oldest = redis.call('LINDEX', list, 0)
  if not oldest or tonumber(string.match(oldest, '^%d+')) > ended then break end
  taken[#taken + 1] = redis.call('LPOP', list)
end
return taken
