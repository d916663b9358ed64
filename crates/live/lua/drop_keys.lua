-- Removes those idempotency keys of one subject whose notes note_keys.lua has removed.
--
-- KEYS  1 answers by idempotency key (hash)  2 idempotency keys by expiry (zset)
-- ARGV  1 time of the hub in ms  then for each key: 1 its expiry in ms, as in its note  2 the key
-- Returns how many of the keys were removed before they expired.
local early = 0
for at = 2, #ARGV, 2 do
  local ends, key = ARGV[at], ARGV[at + 1]
  local kept = redis.call('HGET', KEYS[1], key)
  -- A key that was stored again has another expiry, and a note of its own.
  if kept and string.match(kept, '^%d+') == ends then
    redis.call('HDEL', KEYS[1], key)
    redis.call('ZREM', KEYS[2], key)
    if tonumber(ends) > tonumber(ARGV[1]) then early = early + 1 end
  end
end
return early
