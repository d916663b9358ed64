-- Reads the access commands after a position.
--
-- KEYS  1 feed (stream)
-- ARGV  1 position, or '' for none  2 maximum number of commands to return  3 maximum length of the feed
-- Returns {id of the last command in the feed, {{id, command}, ...}}, with false instead of the commands if the feed does
-- not contain the position.
local position = ARGV[1]
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
local head = newest and newest[1] or '0-0'
local is_known
if position == '0-0' then
  -- A feed that is shorter than its maximum length has not been trimmed.
  is_known = redis.call('XLEN', KEYS[1]) < tonumber(ARGV[3])
else
  is_known = position ~= '' and #redis.call('XRANGE', KEYS[1], position, position) == 1
end
if not is_known then return {head, false} end

local commands = {}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], '(' .. position, '+', 'COUNT', ARGV[2])) do
  commands[#commands + 1] = {entry[1], entry[2][2]}
end
return {head, commands}
