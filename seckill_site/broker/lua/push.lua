-- push: add a message to a queue; one that may wait only once is not added beside its equal.
--
-- KEYS[1]  queue  list  messages, the next one to be taken last
-- ARGV[1]  message
-- ARGV[2]  1: it waits at most once
--
-- Returns how many keys were moved aside.

-- @include move_aside

local moved = move_aside(KEYS[1], 'list')
if ARGV[2] ~= '1' or not redis.call('LPOS', KEYS[1], ARGV[1]) then
  redis.call('LPUSH', KEYS[1], ARGV[1])
end
return moved
