-- Release one reader, and wake all waiters if it was the last. Times are milliseconds.
--
-- Replay: as in release.lua.
--
-- KEYS[1]  the owner's released marker
-- KEYS[2]  the lock
-- KEYS[3]  its readers
-- ARGV[1]  owner
-- ARGV[2]  lifetime of the marker; 0 = none, for a release by force: the owner must learn of it
-- ARGV[3]  the channel
-- ARGV[4]  the releasing process
--
-- Returns 1 RELEASED if the owner was a reader, else 2 NOT_OWNED.
-- @include digits
-- @include now_ms
-- @include publish

local RELEASED, NOT_OWNED = 1, 2

local marker, name, readers = KEYS[1], KEYS[2], KEYS[3]
local owner, keep, channel, process = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local first = redis.call('GET', marker)
if first then
  return tonumber(first)
end

redis.call('ZREMRANGEBYSCORE', readers, '-inf', digits(now_ms()))
local answer = redis.call('ZREM', readers, owner) == 1 and RELEASED or NOT_OWNED
if redis.call('EXISTS', readers) == 0 then
  publish(channel, process .. '\n' .. name)
end
if tonumber(keep) > 0 then
  redis.call('SET', marker, answer, 'PX', keep)
end
return answer
