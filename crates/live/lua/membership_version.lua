-- Returns the membership version of a subject, and stores the given version first if the subject has none.
--
-- KEYS  1 version
-- ARGV  1 a version that was never used  2 time in ms after which a version that is not read expires
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return ARGV[1] end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('GET', KEYS[1])
