-- note_alive: note that something is alive now, by the clock of Redis.
--
-- KEYS[1]  heartbeats  hash  a name -> when it was last alive, in ms; "since": the first of all
-- ARGV     names
--
-- Returns nothing. A key of another type, from a mistyped command, is made again.

if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('UNLINK', KEYS[1]) end
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSETNX', KEYS[1], 'since', now)
for _, name in ipairs(ARGV) do
  redis.call('HSET', KEYS[1], name, now)
end
