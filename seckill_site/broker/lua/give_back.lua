-- give_back: put an unacknowledged message back to the head of its queues. Safe to repeat.
--
-- KEYS[1]  unacked  hash  tag -> message
-- KEYS[2]  index    zset  tag, by when it was taken
-- KEYS[3…] queues   list
-- ARGV[1]  tag  ARGV[2] message as it goes back
-- ARGV[3]  1: it waits at most once in each
--
-- Returns how many keys were moved aside.

-- @include move_aside

local moved = 0
redis.call('ZREM', KEYS[2], ARGV[1])
if redis.call('HDEL', KEYS[1], ARGV[1]) == 0 then return moved end
for i = 3, #KEYS do
  moved = moved + move_aside(KEYS[i], 'list')
  if ARGV[3] ~= '1' or not redis.call('LPOS', KEYS[i], ARGV[2]) then
    redis.call('RPUSH', KEYS[i], ARGV[2])
  end
end
return moved
