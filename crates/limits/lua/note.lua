-- Notes members in a set, which lives so long after the last note.
--
-- KEYS  1 set
-- ARGV  1 life of the set in ms  2... members
for at = 2, #ARGV do redis.call('SADD', KEYS[1], ARGV[at]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
