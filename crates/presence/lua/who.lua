-- Who is in a room, at one moment.
--
-- KEYS  1 last seen, by person (hash)  2 signs, by person (hash), with #version
-- ARGV  1 most people to list
-- Gives {ms, version or '', count, {person, last seen, ...}}; nobody is listed when there are more.
local clock = redis.call('TIME')
local ms = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000))
local count, people = redis.call('HLEN', KEYS[1]), {}
if count <= tonumber(ARGV[1]) then people = redis.call('HGETALL', KEYS[1]) end
return {ms, redis.call('HGET', KEYS[2], '#version') or '', count, people}
