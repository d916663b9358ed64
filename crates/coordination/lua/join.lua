-- Joins the fleet or renews the lease, removes the instances whose lease has ended, and returns those that are alive.
--
-- KEYS  1 instances by the end of their lease, in ms (zset)
--       2 stored form of each instance (hash): '<joined at, in ms> <records> <JSON>'
-- ARGV  1 instance  2 lease time in ms  3 its records: 'off', 'shared:<database>' or 'own'
--       4 its JSON, with requiredSettings by name: they must equal those of the instances that are alive
-- Returns {'alive' or the id of the instance that excludes this one, now in ms, {{instance, stored form}, ...}}.
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

for _, expired in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, 1000)) do
  redis.call('ZREM', KEYS[1], expired)
  redis.call('HDEL', KEYS[2], expired)
end

-- Whether a required setting differs. A setting that the other instance lacks, perhaps because that instance
-- is older, counts as equal.
local function differs(required, other_json)
  local theirs = cjson.decode(other_json).requiredSettings or {}
  for name, value in pairs(required) do
    if theirs[name] and theirs[name] ~= value then return true end
  end
  return false
end

local outcome = 'alive'
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  local required = cjson.decode(ARGV[4]).requiredSettings
  for _, other in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    local stored = redis.call('HGET', KEYS[2], other)
    local records, json = string.match(stored or '', '^%d+ (%S+) (.*)')
    if records and (ARGV[3] == 'own' or records ~= ARGV[3] or differs(required, json)) then outcome = other end
  end
  if outcome == 'alive' then
    redis.call('HSET', KEYS[2], ARGV[1], table.concat({string.format('%.0f', now), ARGV[3], ARGV[4]}, ' '))
  end
end
if outcome == 'alive' then
  redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
  redis.call('PEXPIRE', KEYS[1], ARGV[2] * 2)
  redis.call('PEXPIRE', KEYS[2], ARGV[2] * 2)
end

local alive = {}
for _, instance in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local stored = redis.call('HGET', KEYS[2], instance)
  if stored then alive[#alive + 1] = {instance, stored} end
end
return {outcome, string.format('%.0f', now), alive}
