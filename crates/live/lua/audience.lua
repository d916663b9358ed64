-- Says how many streams of an instance listen to a subject.
--
-- KEYS  1 streams that listen, by instance (hash)
-- ARGV  1 instance  2 count  3 until when this is good, in ms  4 for how long
if ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
