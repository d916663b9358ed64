-- Takes something out of a bucket, if it holds enough.
--
-- KEYS  1 bucket: its level and when it was so high, in microseconds (string)
-- ARGV  1 what flows in per second  2 how much it holds  3 how much is wanted, not more than it holds
--       4 how little may be missing
-- Gives false, or how much is missing.
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local rate, burst, cost = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local level, at = burst, now
local kept = redis.call('GET', KEYS[1])
if kept then
  level, at = string.match(kept, '^(%S+) (%S+)$')
  -- A clock that went back lets nothing flow in, and goes on from where it is.
  at = math.min(at, now)
  level = math.min(burst, level + (now - at) / 1000000 * rate)
end
local missing = cost - level
local enough = missing <= tonumber(ARGV[4])
if enough then level = level - cost end
-- When it is full again there is nothing to remember.
local full = math.min(math.ceil((burst - level) / rate * 1000) + 1, 4294967295)
redis.call('SET', KEYS[1], string.format('%.17g %.0f', level, now), 'PX', string.format('%.0f', full))
return not enough and string.format('%.17g', missing)
