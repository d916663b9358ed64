-- Takes a lock if nobody has it, and gives its next token.
--
-- KEYS  1 lock  2 last token
-- ARGV  1 owner  2 for how long, in ms  3 life of the token in ms
-- Gives {'granted', token} or {'taken', ms until it ends, negative when it does not}.
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then return {'taken', redis.call('PTTL', KEYS[1])} end
-- The time in microseconds, or the next number when it stands still or went back: it grows also when the last one
-- was forgotten.
local clock = redis.call('TIME')
local token = math.max(clock[1] * 1000000 + clock[2], (redis.call('GET', KEYS[2]) or 0) + 1)
redis.call('SET', KEYS[2], string.format('%.0f', token), 'PX', ARGV[3])
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return {'granted', token}
