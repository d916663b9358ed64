-- Drops idempotency keys of one subject.
--
-- KEYS  1 answers by key (hash)  2 keys by expiry (zset)
-- ARGV  1 the hub's time in ms  then for each key: 1 when its life ends, as noted  2 the key
-- Gives how many of them were dropped before their life was over.
local early = 0
for at = 2, #ARGV, 2 do
  local ends, key = ARGV[at], ARGV[at + 1]
  local kept = redis.call('HGET', KEYS[1], key)
  -- A key that was stored anew has a note of its own.
  if kept and string.match(kept, '^%d+') == ends then
    redis.call('HDEL', KEYS[1], key)
    redis.call('ZREM', KEYS[2], key)
    if tonumber(ends) > tonumber(ARGV[1]) then early = early + 1 end
  end
end
return early
