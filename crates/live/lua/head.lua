-- Reads the position of the newest entry of a subject.
--
-- KEYS  1 stream  2 last id of a deleted log
-- Returns {id, number or ''}: {'0-0', '0'} for a subject that never had an entry.
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not newest then
  local deleted_last = redis.call('GET', KEYS[2])
  if deleted_last then return {deleted_last, ''} end
  return {'0-0', '0'}
end
for at = 1, #newest[2], 2 do
  if newest[2][at] == 'number' then return {newest[1], newest[2][at + 1]} end
end
return {newest[1], ''}
