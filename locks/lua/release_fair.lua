-- Release one lock if it is still this owner's, and wake the first in its queue.
--
-- Replay: as in release.lua. Times are milliseconds.
--
-- KEYS[1]  the owner's released marker
-- KEYS[2]  the lock
-- KEYS[3]  the queue
-- KEYS[4]  its live owners
-- ARGV[1]  owner
-- ARGV[2]  lifetime of the marker; 0 = none, for a release by force: the owner must learn of it
-- ARGV[3]  the channel
--
-- Returns 1 RELEASED if the lock was the owner's, else 2 NOT_OWNED.
-- @include is_of
-- @include publish
-- @include value_of

local RELEASED, NOT_OWNED = 1, 2

local marker, name, queue, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, keep, channel = ARGV[1], ARGV[2], ARGV[3]

local first = redis.call('GET', marker)
if first then
  return tonumber(first)
end

-- An owner whose acquire got no reply may still be in the queue.
redis.call('ZREM', queue, owner)
redis.call('ZREM', alive, owner)

local answer = NOT_OWNED
if is_of(value_of(name), owner) then
  redis.call('DEL', name)
  answer = RELEASED
end
local next_owner = redis.call('ZRANGE', queue, 0, 0)[1]
if next_owner and redis.call('EXISTS', name) == 0 then
  publish(channel, '\n' .. name .. ' ' .. next_owner)
end
if tonumber(keep) > 0 then
  redis.call('SET', marker, answer, 'PX', keep)
end
return answer
