-- Take the lock for writing if nobody reads or writes. Times are milliseconds.
--
-- A waiting writer keeps new readers out, or it might wait forever; its note is short-lived, and each
-- request renews it. Replay: as in acquire.lua.
--
-- KEYS[1]  the owner's released marker (only read)
-- KEYS[2]  the lock
-- KEYS[3]  its waiting processes
-- KEYS[4]  its readers
-- KEYS[5]  waiting writers, scored with the Redis time until which each counts
-- KEYS[6]  the fencing counter; left out = no token wanted
-- ARGV[1]  owner
-- ARGV[2]  lease
-- ARGV[3]  fence floor, as in acquire.lua
-- ARGV[4]  the requesting process
-- ARGV[5]  number of its threads that wait if this is refused; negative = note nothing
-- ARGV[6]  the same if this is granted
-- ARGV[7]  lifetime of that note and of the note of a waiting writer
--
-- Returns {1 GRANTED, token in digits or ''}, {2 BUSY, time left of the holder's lease} or {3 ENDED}.
-- @include digits
-- @include extend_ttl
-- @include is_of
-- @include note_waiting
-- @include now_ms
-- @include take
-- @include value_of

local GRANTED, BUSY, ENDED = 1, 2, 3

local marker, name, waiting, readers, writers, fence =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local owner, lease, floor = ARGV[1], ARGV[2], ARGV[3]
local process, if_busy, if_granted, ttl = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

if redis.call('EXISTS', marker) == 1 then
  return {ENDED}
end

local now = now_ms()
redis.call('ZREMRANGEBYSCORE', readers, '-inf', digits(now))

-- An owner that already has the lock (a retry after a lost reply) may also be reading.
local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
local read_by_others = last and not is_of(value_of(name), owner)
local token = not read_by_others and take(marker, name, owner, lease, fence, floor)
note_waiting(waiting, process, token and if_granted or if_busy, ttl)
if token then
  redis.call('ZREM', writers, owner)
  return {GRANTED, token}
end
if tonumber(if_busy) > 0 then
  redis.call('ZADD', writers, digits(now + ttl), owner)
  extend_ttl(writers, ttl)
end
return {BUSY, read_by_others and last - now or redis.call('PTTL', name)}
