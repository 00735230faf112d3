-- Lets go of one lock, only if it is still this owner's, and wakes one who waits. Milliseconds.
--
-- Replay: the first answer is kept for a while under a key of this owner, the released marker, since
-- after the deletion nothing else tells a repeated release from one that comes too late. The marker
-- also stops a late copy of the owner's acquire.
--
-- KEYS[1]  the owner's released marker
-- KEYS[2]  the lock
-- KEYS[3]  its waiting processes
-- ARGV[1]  owner
-- ARGV[2]  how long the marker is kept; 0 = not set, for a release by force: the owner shall be told
-- ARGV[3]  the channel; that of a process has ':' and its name behind it
-- ARGV[4]  the releasing process
--
-- Returns {1 RELEASED} where the lock was the owner's, else {2 NOT_OWNED}; behind it 1 where it is the
-- releasing process that has one to wake.

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
