-- Give up a place in the queue of a fair lock, and wake the first owner in it if the lock is free.
--
-- Replay: the same result.
--
-- KEYS[1]  the lock
-- KEYS[2]  the queue
-- KEYS[3]  its live owners
-- ARGV[1]  owner
-- ARGV[2]  the channel
--
-- Returns 1 LEFT.
-- @include publish

local LEFT = 1

local name, queue, alive, owner, channel = KEYS[1], KEYS[2], KEYS[3], ARGV[1], ARGV[2]

redis.call('ZREM', queue, owner)
redis.call('ZREM', alive, owner)
local first = redis.call('ZRANGE', queue, 0, 0)[1]
if first and redis.call('EXISTS', name) == 0 then
  publish(channel, '\n' .. name .. ' ' .. first)
end
return LEFT
