-- Says who of one source is in a room, newly or still, and who of it has left; then lists some of those who are there.
-- Whoever's time is up leaves as well, and so do those whom only an instance had that is gone. Every change is announced
-- here and nowhere else.
--
-- KEYS  1 last seen, by person (hash)
--       2 signs, by person: 'source ms source ms ...' (hash; also #version, #gathered: 'due changes first',
--         #sources: 'source ms ...' with when each said something last, #ended: 'cursor source ms ...' while the signs of
--         instances that are gone are being looked for)
--       3 when to look at whom (zset)
--       4 everybody in the order of lists, each with the length of the id before it: '003ada' (zset, all with score 0)
-- ARGV  1 source: an instance, or * for heartbeats  2 life of a sign in ms  3 life of the keys in ms  4 channel
--       5 most people that are listed  6 ms that changes of a larger room are gathered
--       7 when it was seen which instances are alive, in ms, or 0  8 how many are
--       9 how many people to list  10 after whom, as ZRANGE takes it: '-' or '(003ada'
--       11 how many are here  12... the instances that are alive, those who are here, then those who left
-- Gives {ms until somebody has to look again or -1, now in ms, version of the last announcement or '', how many are in the
-- room, {person, last seen, ...}}.
local source, life, channel = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local most, gather = tonumber(ARGV[5]), tonumber(ARGV[6])
local seen, instances, here = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[11])
local first_here = 12 + instances
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- An instance that is not known to be alive may have come after that was seen, or come back.
local GRACE = 3000
-- So many people are looked at in one call: a hub that died with thousands must not hold up everybody else.
local STEP = 50

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

local function times(text)
  local found = {}
  for of, at in string.gmatch(text or '', '(%S+) (%d+)') do found[of] = tonumber(at) end
  return found
end

local function joined(found, record)
  for of, at in pairs(found) do record[#record + 1] = of .. ' ' .. whole(at) end
  return table.concat(record, ' ')
end

-- Which instances are gone, each with the time of its last word: a newer sign is of one that has come back.
local sources = times(redis.call('HGET', KEYS[2], '#sources'))
local cursor, ended = string.match(redis.call('HGET', KEYS[2], '#ended') or '0', '^(%d+)(.*)$')
ended = times(ended)
local alive = {[source] = true}
for at = 12, first_here - 1 do alive[ARGV[at]] = true end
for of, said in pairs(sources) do
  if not alive[of] and seen - said > GRACE then
    ended[of], sources[of], cursor = said, nil, '0'
    redis.call('HSET', KEYS[2], '#sources', joined(sources, {}))
  end
end

-- The signs of a person that are still good.
local function read(person)
  local signs = {}
  for of, at in pairs(times(redis.call('HGET', KEYS[2], person))) do
    if at + life > now and at > (ended[of] or 0) then signs[of] = at end
  end
  return signs
end

local function write(person, signs)
  local first, last = math.huge, 0
  for _, at in pairs(signs) do first, last = math.min(first, at), math.max(last, at) end
  local place = string.format('%03d', #person) .. person
  if last > 0 then
    redis.call('HSET', KEYS[2], person, joined(signs, {}))
    -- By the first sign to end, not the last: looking too early costs little, and nothing that ends is overlooked.
    redis.call('ZADD', KEYS[3], first + life, person)
    redis.call('ZADD', KEYS[4], 0, place)
    if redis.call('HSET', KEYS[1], person, whole(last)) == 1 then change('+' .. person) end
  else
    redis.call('HDEL', KEYS[2], person)
    redis.call('ZREM', KEYS[3], person)
    redis.call('ZREM', KEYS[4], place)
    if redis.call('HDEL', KEYS[1], person) == 1 then change('-' .. person) end
  end
end

for at = first_here, first_here + here - 1 do
  local signs = read(ARGV[at])
  -- Who has gone meanwhile and nobody noticed has left, and comes back.
  if next(signs) == nil then write(ARGV[at], signs) end
  signs[source] = now
  write(ARGV[at], signs)
end
if here > 0 then
  if source ~= '*' then
    sources[source] = now
    redis.call('HSET', KEYS[2], '#sources', joined(sources, {}))
  end
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[3]) end
end

for at = first_here + here, #ARGV do
  local signs = read(ARGV[at])
  if signs[source] then
    signs[source] = nil
    local of = next(signs)
    -- A heartbeat beside the last stream was of the same page.
    if of == '*' and next(signs, of) == nil then signs = {} end
    write(ARGV[at], signs)
  end
end

local look = -1
if next(ended) then
  local scanned, found = redis.call('HSCAN', KEYS[2], cursor, 'COUNT', STEP), 0
  for at = 1, #scanned[2], 2 do
    local person, signs = scanned[2][at], times(scanned[2][at + 1])
    local has_ended = false
    -- What an instance said after it came back has not ended.
    for of, said in pairs(ended) do has_ended = has_ended or (signs[of] ~= nil and signs[of] <= said) end
    if has_ended and string.sub(person, 1, 1) ~= '#' then
      found = found + 1
      if found <= STEP then write(person, read(person)) end
    end
  end
  -- A small hash is scanned as a whole, however many were asked for: then those who are left are scanned again.
  if found <= STEP then cursor = scanned[1] end
  if found <= STEP and cursor == '0' then
    redis.call('HDEL', KEYS[2], '#ended')
  else
    redis.call('HSET', KEYS[2], '#ended', joined(ended, {cursor}))
    look = 0
  end
end

for _, person in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, STEP)) do
  write(person, read(person))
end

local function look_within(ms)
  if look < 0 or ms < look then look = math.max(ms, 0) end
end
local gathered = redis.call('HGET', KEYS[2], '#gathered')
if gathered then
  local due, changes, first = string.match(gathered, '^(%d+) (%d+) (.+)$')
  if tonumber(due) <= now or redis.call('HLEN', KEYS[1]) <= most then
    redis.call('HDEL', KEYS[2], '#gathered')
    announce(changes == '1' and first or '=')
  else
    look_within(due - now)
  end
end
local first = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
if first then look_within(first - now) end

local people = {}
if tonumber(ARGV[9]) > 0 then
  local places = redis.call('ZRANGE', KEYS[4], ARGV[10], '+', 'BYLEX', 'LIMIT', 0, ARGV[9])
  for at, place in ipairs(places) do places[at] = string.sub(place, 4) end
  local times_seen = #places > 0 and redis.call('HMGET', KEYS[1], unpack(places)) or {}
  for at, person in ipairs(places) do
    if times_seen[at] then
      people[#people + 1] = person
      people[#people + 1] = times_seen[at]
    end
  end
end
return {look, whole(now), redis.call('HGET', KEYS[2], '#version') or '', redis.call('HLEN', KEYS[1]), people}
