-- Writes a value for a runner, unless a later one has written.
--
-- KEYS  1 value  2 fence
-- ARGV  1 value  2 token
-- Gives 'written' or 'fenced'.
if tonumber(redis.call('GET', KEYS[2]) or '0') > tonumber(ARGV[2]) then return 'fenced' end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SET', KEYS[1], ARGV[1])
return 'written'
