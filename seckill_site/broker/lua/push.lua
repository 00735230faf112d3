-- push: add a message to a queue, unless its equal waits there.
--
-- KEYS[1]  queue  list  messages, the next one to be taken last
-- ARGV[1]  message
--
-- Returns how many keys were moved aside.

-- @include move_aside

local moved = move_aside(KEYS[1], 'list')
if not redis.call('LPOS', KEYS[1], ARGV[1]) then
  redis.call('LPUSH', KEYS[1], ARGV[1])
end
return moved
