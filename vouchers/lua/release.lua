-- release: these reservations are over; their units go back on sale.
--
-- A unit goes back only where its field still holds this very order id: a replayed release would
-- otherwise delete a newer reservation of the same buyer.
--
-- KEYS[1]  sale     hash
-- KEYS[2]  buyers   hash
-- KEYS[3]  pending  zset
-- KEYS[4]  ended    hash  order id -> <user>:<reason>, a cache of the rows
-- KEYS[5]  tries    hash  order id -> attempts
-- ARGV[1]  milliseconds that `ended` is kept after the sale's end, or after now if that is later
-- ARGV[2…] any number of groups of five: order id, user id, unit, reason, and the live order id
--          to put in its place, or ""
--
-- Returns how many fields were given back or replaced.

local released = 0
for i = 2, #ARGV, 5 do
  local order_id, user_id, unit = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local reason, live_order_id = ARGV[i + 3], ARGV[i + 4]
  local field = user_id .. ':' .. unit
  if redis.call('HGET', KEYS[2], field) == order_id then
    if live_order_id ~= '' then
      redis.call('HSET', KEYS[2], field, live_order_id)
    else
      redis.call('HDEL', KEYS[2], field)
    end
    released = released + 1
  end
  redis.call('ZREM', KEYS[3], order_id .. ':' .. field)
  redis.call('HSET', KEYS[4], order_id, user_id .. ':' .. reason)
  redis.call('HDEL', KEYS[5], order_id)
end

local now_ms = now_in_ms()
local ends_at_ms = tonumber(redis.call('HGET', KEYS[1], 'ends_at_ms') or 0)
local keep_ms = math.max(ends_at_ms, now_ms) + tonumber(ARGV[1]) - now_ms
-- Never shorter than before: tokens issued under a later end are still about.
if redis.call('PTTL', KEYS[4]) < keep_ms then
  redis.call('PEXPIRE', KEYS[4], integer(keep_ms))
end
return released
