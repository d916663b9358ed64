-- Reads on in the feed of orders.
--
-- KEYS  1 feed (stream)
-- ARGV  1 position, or '' for none  2 orders at most  3 orders that are kept
-- Gives {the last id, {{id, order}, ...}}, with false for the orders when the position is none that the feed knows.
local position = ARGV[1]
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local head = newest and newest[1] or '0-0'
local known
if position == '0-0' then
  -- The beginning is there as long as nothing was trimmed.
  known = redis.call('XLEN', KEYS[1]) < tonumber(ARGV[3])
else
  known = position ~= '' and #redis.call('XRANGE', KEYS[1], position, position) == 1
end
if not known then return {head, false} end

local orders = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '(' .. position, '+', 'COUNT', ARGV[2])) do
  orders[#orders + 1] = {entry[1], entry[2][2]}
end
return {head, orders}
