-- Take the lock for reading unless another owner writes or waits to write. Times are milliseconds.
--
-- The writer may read as well, and keeps reading after it releases the write lock.
-- Replay: a reader that already has the lock gets a full lease from now. An owner that has released
-- gets nothing (acquire.lua says why).
--
-- KEYS[1]  the owner's released marker (only read)
-- KEYS[2]  the lock
-- KEYS[3]  its waiting processes
-- KEYS[4]  its readers
-- KEYS[5]  waiting writers, scored with the Redis time until which each counts
-- ARGV[1]  owner
-- ARGV[2]  lease
-- ARGV[3]  the owner token with which the same thread writes, or ''
-- ARGV[4]  the requesting process
-- ARGV[5]  number of its threads that wait if this is refused; negative = note nothing
-- ARGV[6]  the same if this is granted
-- ARGV[7]  lifetime of that note
--
-- Returns {1 GRANTED, ''}, {2 BUSY, how long it may stay busy} or {3 ENDED}.
-- @include digits
-- @include extend_ttl
-- @include is_free
-- @include is_of
-- @include note_waiting
-- @include now_ms
-- @include value_of

local GRANTED, BUSY, ENDED = 1, 2, 3

local marker, name, waiting, readers, writers = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, lease, writer = ARGV[1], ARGV[2], ARGV[3]
local process, if_busy, if_granted, ttl = ARGV[4], ARGV[5], ARGV[6], ARGV[7]

if redis.call('EXISTS', marker) == 1 then
  return {ENDED}
end

local now = now_ms()
redis.call('ZREMRANGEBYSCORE', readers, '-inf', digits(now))

local reads = redis.call('ZSCORE', readers, owner)
local writes = writer ~= '' and is_of(value_of(name), writer)
if not reads and not writes then
  redis.call('ZREMRANGEBYSCORE', writers, '-inf', digits(now))
  local left = not is_free(name) and redis.call('PTTL', name)
  local last = redis.call('ZRANGE', writers, -1, -1, 'WITHSCORES')[2]
  if left or last then
    note_waiting(waiting, process, if_busy, ttl)
    return {BUSY, left or last - now}
  end
end

redis.call('ZADD', readers, digits(now + lease), owner)
extend_ttl(readers, lease)
note_waiting(waiting, process, if_granted, ttl)
return {GRANTED, ''}
