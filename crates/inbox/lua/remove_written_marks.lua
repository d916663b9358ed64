-- Removes read marks that were written to SQL, unless their read time has changed since.
--
-- KEYS  1 read marks of one person (hash)
-- ARGV  pairs of sequence number and read time in ms
for at = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[at]) == ARGV[at + 1] then redis.call('HDEL', KEYS[1], ARGV[at]) end
end
