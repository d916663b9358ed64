-- One more entry was read: the standing that is remembered counts one less from now on.
--
-- KEYS  1 count, version and last number (string)
-- ARGV  1 entry
-- Gives the new one; nothing when none is known, or it is older than the entry.
local known = redis.call('GET', KEYS[1])
if not known then return false end
local unread, version, last = string.match(known, '^(%d+) (%d+) (%d+)$')
if not unread or tonumber(ARGV[1]) > tonumber(last) then return false end
local left = string.format('%d %d %s', math.max(tonumber(unread) - 1, 0), tonumber(version) + 1, last)
redis.call('SET', KEYS[1], left, 'KEEPTTL')
return left
