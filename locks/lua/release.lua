-- Release one lock if it is still this owner's, and wake one waiter. Times are milliseconds.
--
-- Replay: the released marker, a key of this owner, keeps the first answer for a while. Once the lock is
-- deleted, nothing else distinguishes a repeated release from one that is too late. The marker also
-- stops a late copy of the owner's acquire.
--
-- KEYS[1]  the owner's released marker
-- KEYS[2]  the lock
-- KEYS[3]  its waiting processes
-- ARGV[1]  owner
-- ARGV[2]  lifetime of the marker; 0 = none, for a release by force: the owner must learn of it
-- ARGV[3]  the channel; for that of one process, ':' and its name are appended
-- ARGV[4]  the releasing process
--
-- Returns {1 RELEASED} if the lock was the owner's, else {2 NOT_OWNED}; then 1 if the releasing process
-- must wake a waiter of its own.
-- @include is_of
-- @include wake_one

local RELEASED, NOT_OWNED = 1, 2

local marker, name, waiting = KEYS[1], KEYS[2], KEYS[3]
local owner, keep, channel, process = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local read = redis.call('MGET', marker, name)
if read[1] then
  return {tonumber(read[1])}
end

local answer, here = NOT_OWNED, nil
if is_of(read[2], owner) then
  redis.call('DEL', name) -- before the marker: it must work when Redis has no memory left for that
  here = wake_one(channel, process, waiting, name) and 1 or nil
  answer = RELEASED
end
if tonumber(keep) > 0 then
  redis.call('SET', marker, answer, 'PX', keep)
end
return {answer, here}
