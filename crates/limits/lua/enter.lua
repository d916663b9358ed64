-- Takes one more place in a scope for an instance, unless all are taken.
--
-- KEYS  1 instances of the shard by the end of their lease, in ms (zset)
--       2 places by instance, with the number of the word that said so (hash)
-- ARGV  1 instance  2 number of this word  3 places it would have  4 places there are  5 lease in ms
--       6 life of the counts in ms
-- Gives {whether it has the place, whether its lease had not ended}, as 1 or 0.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function is_alive(instance)
  local ends = redis.call('ZSCORE', KEYS[1], instance)
  return ends and tonumber(ends) > now
end

local taken, said = tonumber(ARGV[3]), 0
local counts = redis.call('HGETALL', KEYS[2])
for at = 1, #counts, 2 do
  local count, number = string.match(counts[at + 1], '^(%d+) (%d+)$')
  if counts[at] == ARGV[1] then
    said = tonumber(number)
  elseif is_alive(counts[at]) then
    taken = taken + count
  else
    redis.call('HDEL', KEYS[2], counts[at])
  end
end
local was_leased = is_alive(ARGV[1]) and 1 or 0
-- Something newer has been said: nobody waits for this any more.
if said > tonumber(ARGV[2]) or taken > tonumber(ARGV[4]) then return {0, was_leased} end

redis.call('HSET', KEYS[2], ARGV[1], ARGV[3] .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('ZADD', KEYS[1], now + ARGV[5], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[5] * 2)
return {1, was_leased}
