-- Take one lock if it is free and this owner is first; else keep its place. Times are milliseconds.
--
-- Waiting owners form a queue in the order of their first request. Each asks again within its patience;
-- one that does not (its process is gone) drops out.
-- Replay: as in acquire.lua; an owner in the queue keeps its place.
--
-- KEYS[1]  the owner's released marker (only read)
-- KEYS[2]  the lock
-- KEYS[3]  the queue: owner by place
-- KEYS[4]  its live owners, scored with the Redis time until which each counts
-- KEYS[5]  the fencing counter; left out = no token wanted
-- ARGV[1]  owner
-- ARGV[2]  lease
-- ARGV[3]  fence floor, as in acquire.lua
-- ARGV[4]  patience; 0 = do not wait and take no place
--
-- Returns {1 GRANTED, token in digits or ''}, {2 BUSY, longest wait before asking again} or
-- {3 ENDED}.
-- @include digits
-- @include extend_ttl
-- @include is_free
-- @include is_of
-- @include now_ms
-- @include take
-- @include value_of

local GRANTED, BUSY, ENDED = 1, 2, 3

local marker, name, queue, alive, fence = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, lease, floor, patience = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])

if redis.call('EXISTS', marker) == 1 then
  return {ENDED}
end

local now = now_ms()
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', alive, '-inf', digits(now))) do
  redis.call('ZREM', alive, gone)
  redis.call('ZREM', queue, gone)
end

local function leave_queue()
  redis.call('ZREM', queue, owner)
  redis.call('ZREM', alive, owner)
end

local first = redis.call('ZRANGE', queue, 0, 0)[1]
while first and not redis.call('ZSCORE', alive, first) do
  redis.call('ZREM', queue, first)
  first = redis.call('ZRANGE', queue, 0, 0)[1]
end
local free = is_free(name)
local turn = free and (not first or first == owner)
if turn or is_of(value_of(name), owner) then
  leave_queue()
  return {GRANTED, (take(marker, name, owner, lease, fence, floor))}
end

if patience > 0 then
  if not redis.call('ZSCORE', queue, owner) then
    local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')[2] or 0
    redis.call('ZADD', queue, digits(last + 1), owner)
  end
  redis.call('ZADD', alive, digits(now + patience), owner)
  extend_ttl(queue, patience)
  extend_ttl(alive, patience)
end
if free then
  return {BUSY, redis.call('ZSCORE', alive, first) - now}
end
return {BUSY, redis.call('PTTL', name)}
