-- Return whether a lock is free, this owner's or another's at this moment. Writes nothing.
--
-- KEYS[1]  the lock
-- KEYS[2]  its readers
-- ARGV[1]  an owner
--
-- Returns 1 FREE, 2 OURS if this owner has it, to read or to write, or 3 TAKEN by others.
-- @include is_of
-- @include now_ms
-- @include value_of

local FREE, OURS, TAKEN = 1, 2, 3

local name, readers, owner = KEYS[1], KEYS[2], ARGV[1]

local now = now_ms()
if is_of(value_of(name), owner) then
  return OURS
end
if redis.call('TYPE', readers).ok ~= 'zset' then
  return value_of(name) and TAKEN or FREE
end
if tonumber(redis.call('ZSCORE', readers, owner) or '0') > now then
  return OURS
end
local last = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')[2]
return (value_of(name) or tonumber(last) > now) and TAKEN or FREE
