-- Caches an unread count, unless the cached one has a higher version.
--
-- KEYS  1 unread count, version and last sequence number (string)
-- ARGV  1 unread count  2 version  3 last sequence number  4 expiry in ms
local known = redis.call('GET', KEYS[1])
local version = known and string.match(known, '^%d+ (%d+) ')
if version and tonumber(version) > tonumber(ARGV[2]) then return end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. ARGV[3], 'PX', ARGV[4])
