-- Take one lock if it is free, and the next fencing token with it. Times are milliseconds.
--
-- Replay: an owner that already has the lock gets the same token again, and a full lease from now. An
-- owner that has released gets nothing: a late copy of its acquire would take a lock that nobody would
-- release.
--
-- KEYS[1]  the owner's released marker (only read)
-- KEYS[2]  the lock
-- KEYS[3]  its waiting processes
-- KEYS[4]  the fencing counter; left out = no token wanted
-- ARGV[1]  owner
-- ARGV[2]  lease
-- ARGV[3]  fence floor: a missing, unreadable or lower counter continues above it
-- ARGV[4]  the requesting process
-- ARGV[5]  number of its threads that wait if this is refused; negative = note nothing
-- ARGV[6]  the same if this is granted
-- ARGV[7]  lifetime of that note
--
-- Returns {1 GRANTED, token in digits or ''}, {2 BUSY, time left of the holder's lease} or {3 ENDED}.
-- @include note_waiting
-- @include take

local GRANTED, BUSY, ENDED = 1, 2, 3

local marker, name, waiting, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local owner, lease, floor = ARGV[1], ARGV[2], ARGV[3]
local process, if_busy, if_granted, ttl = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

local token, ended = take(marker, name, owner, lease, fence, floor)
if ended then
  return {ENDED}
end
note_waiting(waiting, process, token and if_granted or if_busy, ttl)
if not token then
  return {BUSY, redis.call('PTTL', name)}
end
return {GRANTED, token}
