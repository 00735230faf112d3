-- keep_unacked: keep a message that is in nobody's queue, until it is acknowledged or due.
--
-- KEYS[1]  unacked  hash  tag -> message
-- KEYS[2]  index    zset  tag, by when it was taken, in seconds of Redis' own clock
-- ARGV[1]  tag  ARGV[2] message
-- ARGV[3]  seconds by which to count it as taken later; negative: earlier
--
-- Returns how many keys were moved aside. Without one of the two keys the other is worth nothing.

-- @include move_aside

local moved = move_aside(KEYS[1], 'hash') + move_aside(KEYS[2], 'zset')
if moved > 0 then redis.call('UNLINK', KEYS[1], KEYS[2]) end
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[2], now[1] + now[2] / 1000000 + ARGV[3], ARGV[1])
return moved
