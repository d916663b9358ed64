-- Issues an access command to all instances: stores a revocation, appends the command to the feed, and publishes it.
--
-- KEYS  1 feed (stream)  2 for a revocation: the person's revocation (string)
-- ARGV  1 command  2 maximum length of the feed  3 channel
--       4 for a revocation: tokens issued before this time are rejected, in ms; else ''
--       5 retention of a revocation in ms
--       6 'missing': issues no command if this revocation or a later one is stored; or 'always'
if ARGV[4] ~= '' then
  local before = redis.call('GET', KEYS[2])
  if before and tonumber(before) >= tonumber(ARGV[4]) then
    if ARGV[6] == 'missing' then return end
  else
    before = ARGV[4]
  end
  redis.call('SET', KEYS[2], before, 'PX', ARGV[5])
end
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local id = redis.call('XADD', KEYS[1], 'MAXLEN', ARGV[2], '*', 'order', ARGV[1])
redis.call('SPUBLISH', ARGV[3], table.concat({newest and newest[1] or '0-0', id, ARGV[1]}, ' '))
