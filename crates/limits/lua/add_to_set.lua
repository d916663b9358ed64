-- Adds members to a set and renews its expiry.
--
-- KEYS  1 set
-- ARGV  1 time to live of the set in ms  2... members
for at = 2, #ARGV do redis.call('SADD', KEYS[1], ARGV[at]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
