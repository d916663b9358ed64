-- Says how many places an instance has in some scopes.
--
-- KEYS  places by instance of each scope, with the number of the word that said so (hash)
-- ARGV  1 instance  2 life of the counts in ms, then for each scope: number of this word, places
for at, key in ipairs(KEYS) do
  local number, places = ARGV[2 * at + 1], ARGV[2 * at + 2]
  local said = redis.call('HGET', key, ARGV[1])
  if not said or tonumber(string.match(said, ' (%d+)$')) < tonumber(number) then
    -- Also when there are none: an older word that comes late must find a newer one.
    redis.call('HSET', key, ARGV[1], places .. ' ' .. number)
    local empty = true
    for _, count in ipairs(redis.call('HVALS', key)) do
      if string.sub(count, 1, 2) ~= '0 ' then empty = false end
    end
    redis.call('PEXPIRE', key, empty and 10000 or ARGV[2])
  end
end
