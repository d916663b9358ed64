-- Gives an order to all hubs: writes it into the feed, remembers a revocation, and tells those who listen.
--
-- KEYS  1 feed (stream)  2 for a revocation: the person's (string)
-- ARGV  1 order  2 orders to keep  3 channel  4 for a revocation: tokens issued before this, in ms; or ''
--       5 life of a revocation in ms  6 'missing': does nothing if the revocation or a later one is there; or 'always'
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
