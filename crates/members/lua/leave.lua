-- Counts a personal stream out. Twice is harmless.
--
-- KEYS  1 connections (zset by time)  2 their hubs (hash)
-- ARGV  1 connection
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
