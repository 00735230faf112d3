-- find_due: find the messages that were taken too long ago, by the clock of Redis. Changes nothing.
--
-- KEYS[1]  index  zset  tag, by when it was taken
-- ARGV[1]  seconds that a message may take  ARGV[2] the most tags to return
--
-- Returns tags, oldest first.

if redis.call('TYPE', KEYS[1])['ok'] ~= 'zset' then return {} end
local now = redis.call('TIME')
local latest = now[1] + now[2] / 1000000 - ARGV[1]
return redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', latest, 'LIMIT', 0, ARGV[2])
