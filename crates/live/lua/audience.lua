-- Stores how many streams of an instance are subscribed to a subject.
--
-- KEYS  1 audience by instance (hash)
-- ARGV  1 instance  2 number of streams  3 time in ms at which the number expires  4 lifetime of the hash in ms
if ARGV[2] == '0' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  return
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2] .. ' ' .. ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
