-- Remembers a count, unless a newer one is known.
--
-- KEYS  1 count and version (string)
-- ARGV  1 count  2 version  3 last number  4 for how long, in ms
local known = redis.call('GET', KEYS[1])
local version = known and string.match(known, '^%d+ (%d+) ')
if version and tonumber(version) > tonumber(ARGV[2]) then return end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3], 'PX', ARGV[4])
