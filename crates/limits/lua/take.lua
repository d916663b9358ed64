-- Takes tokens out of a bucket, if it holds enough.
--
-- KEYS  1 bucket: its level in tokens, and the time of that level in microseconds (string)
-- ARGV  1 tokens that are added per second  2 capacity  3 tokens wanted, at most the capacity
--       4 tolerated shortfall in tokens, because fractions are rounded
-- Returns false if the tokens were taken, else the missing tokens.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local level, at = burst, now
local stored = redis.call('GET', KEYS[1])
if stored then
  level, at = string.match(stored, '^(%S+) (%S+)$')
  -- After the clock was set back, no tokens are added for the lost time; filling continues from the new time.
  at = math.min(at, now)
  level = math.min(burst, level + (now - at) / 1000000 * rate)
end
local missing = cost - level
local is_enough = missing <= tonumber(ARGV[4])
if is_enough then level = level - cost end
-- The key expires when the bucket is full again: a full bucket needs no state.
local full_in_ms = math.min(math.ceil((burst - level) / rate * 1000) + 1, 4294967295)
redis.call('SET', KEYS[1], string.format('%.17g %.0f', level, now), 'PX', string.format('%.0f', full_in_ms))
return not is_enough and string.format('%.17g', missing)
