-- One more entry was read: the standing that is remembered counts one less. Its version stays: nobody is told of it.
--
-- KEYS  1 count, version and last number (string)
local known = redis.call('GET', KEYS[1])
local unread, rest = string.match(known or '', '^(%d+)( .*)$')
if unread then
  redis.call('SET', KEYS[1], string.format('%d', math.max(tonumber(unread) - 1, 0)) .. rest, 'KEEPTTL')
end
