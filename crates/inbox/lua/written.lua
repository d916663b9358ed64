-- Removes marks that were written, unless they were changed meanwhile.
--
-- KEYS  1 marks (hash)
-- ARGV  entry, when it was read, and so on
for at = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[at]) == ARGV[at + 1] then redis.call('HDEL', KEYS[1], ARGV[at]) end
end
