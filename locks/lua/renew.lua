-- Give locks a full lease from now if all of them are still this owner's. Times are milliseconds.
--
-- Replay: the same result. A copy that arrives after the release changes nothing, because the owner no
-- longer has the locks.
--
-- KEYS[1…]  the locks; for a reader, the zset of readers
-- ARGV[1]   owner
-- ARGV[2]   lease
--
-- Returns 1 RENEWED, or 2 LOST if at least one is not the owner's; then none is renewed.
-- @include digits
-- @include extend_ttl
-- @include is_of
-- @include now_ms
-- @include value_of

local RENEWED, LOST = 1, 2

local owner, lease, now = ARGV[1], ARGV[2], now_ms()

local function reads(key)
  return redis.call('TYPE', key).ok == 'zset'
    and tonumber(redis.call('ZSCORE', key, owner) or '0') > now
end

local reading = {}
for i, key in ipairs(KEYS) do
  reading[i] = reads(key)
  if not reading[i] and not is_of(value_of(key), owner) then
    return LOST
  end
end

for i, key in ipairs(KEYS) do
  if reading[i] then
    redis.call('ZADD', key, digits(now + lease), owner)
  end
  extend_ttl(key, lease)
end
return RENEWED
