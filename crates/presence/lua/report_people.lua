-- Takes and renews the leases of the people whom a source reports as present, ends the leases of those whom it reports
-- as left, and lists some of the people in the room. Also removes leases that have expired, and those of instances that
-- were lost. A lease belongs to a person and a source: an instance, or '*' for heartbeats. Only this script changes who
-- is in a room and announces the changes.
--
-- KEYS  1 time last seen, by person (hash)
--       2 leases, by person: 'source ms source ms ...', each with the time of its last renewal (hash). Other fields:
--         #version: the version of the last announcement; #gathered: 'due changes first', the batch of changes in a
--         large room; #sources: 'source ms ...', the last report of each instance; #ended: 'cursor source ms ...',
--         while the leases of lost instances are being removed, with the cursor of HSCAN
--       3 people by the time at which their first lease ends (zset)
--       4 the people in the order of lists, with the length of the id before the id: '003ada' (zset, all with score 0)
-- ARGV  1 source  2 lifetime of a lease in ms  3 expiry of the keys in ms  4 channel of the announcements
--       5 the number of people above which a room is large  6 ms within which the changes of a large room are batched
--       7 time at which the list of instances was read, in ms; 0 when it is unknown  8 number of instances in the list
--       9 maximum number of people to list  10 where the list begins, as ZRANGE takes it: '-' or '(003ada'
--       11 number of people who are present
--       12... ids of the instances that are alive, people who are present, people who left
-- Returns {ms until the next report of the room is due or -1, current time in ms, version of the last announcement
-- or '', number of people in the room, {person, time last seen, ...}}.
local source, lease_ttl, channel = ARGV[1], tonumber(ARGV[2]), ARGV[4]
local max_listed, batch_interval = tonumber(ARGV[5]), tonumber(ARGV[6])
local fleet_read_at, instance_count, present_count = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[11])
local first_present = 12 + instance_count
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
-- An instance that is not in the list counts as lost only if its last report is this much older than the list: it may
-- have joined or come back after the list was read.
local GRACE_MS = 3000
-- People whose ended leases are removed in one call, so that the loss of an instance with thousands of people does not
-- block Redis.
local BATCH_SIZE = 50

local function format_integer(number) return string.format('%.0f', number) end

-- Announces '1 version previous ms count change list': change is +id, -id or =, list is id,id or *.
local function announce(change)
  local previous = redis.call('HGET', KEYS[2], '#version') or ''
  -- At least the time, so that versions keep growing after the keys of the room have expired.
  local version = format_integer(math.max(now, (tonumber(previous) or 0) + 1))
  redis.call('HSET', KEYS[2], '#version', version)
  local count, list = redis.call('HLEN', KEYS[1]), '*'
  if count <= max_listed then list = table.concat(redis.call('HKEYS', KEYS[1]), ',') end
  local message = {'1', version, previous, format_integer(now), count, change, list}
  redis.call('SPUBLISH', channel, table.concat(message, ' '))
end

-- Announces a change, or adds it to the batch of a large room. A new batch is published as '1 soon ms', so
-- that every instance with people in the room reports within this time: the instance that began the batch may
-- have no people, or end.
local function record_change(change)
  local batch = redis.call('HGET', KEYS[2], '#gathered')
  if batch then
    local due, changes, first = string.match(batch, '^(%d+) (%d+) (.+)$')
    redis.call('HSET', KEYS[2], '#gathered', table.concat({due, format_integer(changes + 1), first}, ' '))
  elseif redis.call('HLEN', KEYS[1]) > max_listed then
    redis.call('HSET', KEYS[2], '#gathered', table.concat({format_integer(now + batch_interval), '1', change}, ' '))
    redis.call('SPUBLISH', channel, '1 soon ' .. ARGV[6])
  else
    announce(change)
  end
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end

local function parse_times(text)
  local times = {}
  for id, time in string.gmatch(text or '', '(%S+) (%d+)') do times[id] = tonumber(time) end
  return times
end

-- Appends 'id ms' for each time to the given parts, and joins them.
local function format_times(times, parts)
  for id, time in pairs(times) do parts[#parts + 1] = id .. ' ' .. format_integer(time) end
  return table.concat(parts, ' ')
end

-- Moves lost instances from last_reports to ended, each with the time of its last report: a newer lease was taken after
-- the instance came back.
local last_reports = parse_times(redis.call('HGET', KEYS[2], '#sources'))
local cursor, ended = string.match(redis.call('HGET', KEYS[2], '#ended') or '0', '^(%d+)(.*)$')
ended = parse_times(ended)
local alive = {[source] = true}
for index = 12, first_present - 1 do alive[ARGV[index]] = true end
for id, last_report in pairs(last_reports) do
  if not alive[id] and fleet_read_at - last_report > GRACE_MS then
    ended[id], last_reports[id], cursor = last_report, nil, '0'
    redis.call('HSET', KEYS[2], '#sources', format_times(last_reports, {}))
  end
end

-- The leases of a person that have not ended.
local function read_leases(person)
  local leases = {}
  for id, renewed_at in pairs(parse_times(redis.call('HGET', KEYS[2], person))) do
    if renewed_at + lease_ttl > now and renewed_at > (ended[id] or 0) then leases[id] = renewed_at end
  end
  return leases
end

-- Stores the leases of a person, and records the change if the person joins or leaves.
local function write_leases(person, leases)
  local oldest, newest = math.huge, 0
  for _, renewed_at in pairs(leases) do
    oldest, newest = math.min(oldest, renewed_at), math.max(newest, renewed_at)
  end
  local list_entry = string.format('%03d', #person) .. person
  if newest > 0 then
    redis.call('HSET', KEYS[2], person, format_times(leases, {}))
    -- The end of the oldest lease, not of the newest, so that the person is checked as soon as one lease
    -- ends.
    redis.call('ZADD', KEYS[3], oldest + lease_ttl, person)
    redis.call('ZADD', KEYS[4], 0, list_entry)
    if redis.call('HSET', KEYS[1], person, format_integer(newest)) == 1 then record_change('+' .. person) end
  else
    redis.call('HDEL', KEYS[2], person)
    redis.call('ZREM', KEYS[3], person)
    redis.call('ZREM', KEYS[4], list_entry)
    if redis.call('HDEL', KEYS[1], person) == 1 then record_change('-' .. person) end
  end
end

for index = first_present, first_present + present_count - 1 do
  local leases = read_leases(ARGV[index])
  -- A person whose leases have all ended leaves first, and then joins again.
  if next(leases) == nil then write_leases(ARGV[index], leases) end
  leases[source] = now
  write_leases(ARGV[index], leases)
end
if present_count > 0 then
  if source ~= '*' then
    last_reports[source] = now
    redis.call('HSET', KEYS[2], '#sources', format_times(last_reports, {}))
  end
  for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[3]) end
end

for index = first_present + present_count, #ARGV do
  local leases = read_leases(ARGV[index])
  if leases[source] then
    leases[source] = nil
    local id = next(leases)
    -- The heartbeats came from the page whose stream has closed, so their lease ends with the last stream.
    if id == '*' and next(leases, id) == nil then leases = {} end
    write_leases(ARGV[index], leases)
  end
end

local next_report = -1
if next(ended) then
  local scanned, found = redis.call('HSCAN', KEYS[2], cursor, 'COUNT', BATCH_SIZE), 0
  for index = 1, #scanned[2], 2 do
    local person, leases = scanned[2][index], parse_times(scanned[2][index + 1])
    local has_ended = false
    -- A lease that is newer than the last report of the lost instance was taken after the instance came back.
    for id, last_report in pairs(ended) do
      has_ended = has_ended or (leases[id] ~= nil and leases[id] <= last_report)
    end
    if has_ended and string.sub(person, 1, 1) ~= '#' then
      found = found + 1
      if found <= BATCH_SIZE then write_leases(person, read_leases(person)) end
    end
  end
  -- HSCAN returns a small hash as a whole, whatever COUNT is. The next call then scans the hash again for the rest.
  if found <= BATCH_SIZE then cursor = scanned[1] end
  if found <= BATCH_SIZE and cursor == '0' then
    redis.call('HDEL', KEYS[2], '#ended')
  else
    redis.call('HSET', KEYS[2], '#ended', format_times(ended, {cursor}))
    next_report = 0
  end
end

for _, person in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', now, 'LIMIT', 0, BATCH_SIZE)) do
  write_leases(person, read_leases(person))
end

local function report_within(ms)
  if next_report < 0 or ms < next_report then next_report = math.max(ms, 0) end
end
local batch = redis.call('HGET', KEYS[2], '#gathered')
if batch then
  local due, changes, first = string.match(batch, '^(%d+) (%d+) (.+)$')
  if tonumber(due) <= now or redis.call('HLEN', KEYS[1]) <= max_listed then
    redis.call('HDEL', KEYS[2], '#gathered')
    announce(changes == '1' and first or '=')
  else
    report_within(due - now)
  end
end
local first_end = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
if first_end then report_within(first_end - now) end

local people = {}
if tonumber(ARGV[9]) > 0 then
  local list = redis.call('ZRANGE', KEYS[4], ARGV[10], '+', 'BYLEX', 'LIMIT', 0, ARGV[9])
  for index, list_entry in ipairs(list) do list[index] = string.sub(list_entry, 4) end
  local last_seen = #list > 0 and redis.call('HMGET', KEYS[1], unpack(list)) or {}
  for index, person in ipairs(list) do
    if last_seen[index] then
      people[#people + 1] = person
      people[#people + 1] = last_seen[index]
    end
  end
end
local version, count = redis.call('HGET', KEYS[2], '#version') or '', redis.call('HLEN', KEYS[1])
return {next_report, format_integer(now), version, count, people}
