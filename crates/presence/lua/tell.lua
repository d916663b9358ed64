-- Says who of one source is in a room, newly or still, and who of it has left. Whoever's time is up leaves as well.
-- Every change is announced here and nowhere else.
--
-- KEYS  1 last seen, by person (hash)
--       2 signs, by person: 'source ms source ms ...' (hash; also #version, and #gathered: 'due changes first')
--       3 when to look at whom (zset)
-- ARGV  1 source: an instance, or * for heartbeats  2 life of a sign in ms  3 life of the keys in ms  4 channel
--       5 most people that are listed  6 ms that changes of a larger room are gathered
--       7 how many are here  8... those who are here, then those who left
-- Gives the ms until somebody has to look again, or -1.
local source, life, channel = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local most, gather, here = tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local function whole(number) return string.format('%.0f', number) end

-- The message is '1 version previous ms count what list': what is +id, -id or =, list is id,id or *. Another one,
-- '1 soon ms', asks everybody with people there to look by then: whoever began to gather may be gone.
local function announce(what)
  local previous = redis.call('HGET', KEYS[2], '#version') or ''
  -- A time, so that versions grow also when the room was forgotten meanwhile.
  local version = whole(math.max(now, (tonumber(previous) or 0) + 1))
  redis.call('HSET', KEYS[2], '#version', version)
  local count, list = redis.call('HLEN', KEYS[1]), '*'
  if count <= most then list = table.concat(redis.call('HKEYS', KEYS[1]), ',') end
  redis.call('SPUBLISH', channel, table.concat({'1', version, previous, whole(now), count, what, list}, ' '))
end

local function change(what)
  local gathered = redis.call('HGET', KEYS[2], '#gathered')
  if gathered then
    local due, changes, first = string.match(gathered, '^(%d+) (%d+) (.+)$')
    redis.call('HSET', KEYS[2], '#gathered', table.concat({due, whole(changes + 1), first}, ' '))
  elseif redis.call('HLEN', KEYS[1]) > most then
    redis.call('HSET', KEYS[2], '#gathered', table.concat({whole(now + gather), '1', what}, ' '))
    redis.call('SPUBLISH', channel, '1 soon ' .. ARGV[6])
  else
    announce(what)
  end
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end

-- The signs of a person that are still good.
local function read(person)
  local signs = {}
  for of, at in string.gmatch(redis.call('HGET', KEYS[2], person) or '', '(%S+) (%d+)') do
    if at + life > now then signs[of] = tonumber(at) end
  end
  return signs
end

local function write(person, signs)
  local record, first, last = {}, math.huge, 0
  for of, at in pairs(signs) do
    record[#record + 1] = of .. ' ' .. whole(at)
    first, last = math.min(first, at), math.max(last, at)
  end
  if #record > 0 then
    redis.call('HSET', KEYS[2], person, table.concat(record, ' '))
    -- By the first sign to end, not the last: looking too early costs little, and nothing that ends is overlooked.
    redis.call('ZADD', KEYS[3], first + life, person)
    if redis.call('HSET', KEYS[1], person, whole(last)) == 1 then change('+' .. person) end
  else
    redis.call('HDEL', KEYS[2], person)
    redis.call('ZREM', KEYS[3], person)
    if redis.call('HDEL', KEYS[1], person) == 1 then change('-' .. person) end
  end
end

for at = 8, 7 + here do
  local signs = read(ARGV[at])
  -- Who has gone meanwhile and nobody noticed has left, and comes back.
  if next(signs) == nil then write(ARGV[at], signs) end
  signs[source] = now
  write(ARGV[at], signs)
end
if here > 0 then
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[3]) end
end

for at = 8 + here, #ARGV do
  local signs = read(ARGV[at])
  if signs[source] then
    signs[source] = nil
    local of = next(signs)
    -- A heartbeat beside the last stream was of the same page.
    if of == '*' and next(signs, of) == nil then signs = {} end
    write(ARGV[at], signs)
  end
end

-- In steps: a hub that died with thousands of people must not hold up everybody else.
for _, person in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, 50)) do
  write(person, read(person))
end

local look = -1
local gathered = redis.call('HGET', KEYS[2], '#gathered')
if gathered then
  local due, changes, first = string.match(gathered, '^(%d+) (%d+) (.+)$')
  if tonumber(due) <= now or redis.call('HLEN', KEYS[1]) <= most then
    redis.call('HDEL', KEYS[2], '#gathered')
    announce(changes == '1' and first or '=')
  else
    look = due - now
  end
end
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
if first then
  local ends = math.max(first - now, 0)
  if look < 0 or ends < look then look = ends end
end
return look
