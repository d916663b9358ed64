-- Subtracts one from the cached unread count. The version stays, because no device is sent this count.
--
-- KEYS  1 unread count, version and last sequence number (string)
local known = redis.call('GET', KEYS[1])
local unread, rest = string.match(known or '', '^(%d+)( .*)$')
if unread then
  redis.call('SET', KEYS[1], string.format('%d', math.max(tonumber(unread) - 1, 0)) .. rest, 'KEEPTTL')
end
