-- Gives the version of a subject's membership. Where there is none, it becomes the one that is given.
--
-- KEYS  1 version
-- ARGV  1 a version that was never used  2 life of a version that nobody reads, in ms
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return ARGV[1] end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('GET', KEYS[1])
