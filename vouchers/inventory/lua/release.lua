-- release: these reservations and orders are over; their units go to those who wait, or on sale.
--
-- A unit goes back only where its field still holds this very order id: a replayed release would
-- otherwise delete a newer reservation of the same buyer.
--
-- KEYS     the contents
-- ARGV[1]  milliseconds that `ended` is kept after the sale's end, or after now if that is later
-- ARGV[2…] any number of groups of six: order id, user id, unit, reason, the live order id to put
--          in its place or "", and 1 where the buyer has had an order, which may bar another
--
-- Returns how many fields were given back or replaced.

local released, phantom = 0, false
local sale = read_ledger()
for i = 2, #ARGV, 6 do
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
  phantom = phantom or reason == 'sold_out'
  redis.call('ZREM', KEYS[3], order_id .. ':' .. field)
  redis.call('HSET', KEYS[4], order_id, user_id .. ':' .. reason)
  redis.call('HDEL', KEYS[5], order_id)
  if sale and ARGV[i + 5] == '1' then redis.call('HSET', KEYS[6], user_id, order_id) end
end

local now_ms = now_in_ms()
local ends_at_ms = tonumber(redis.call('HGET', KEYS[1], 'ends_at_ms') or 0)
local keep_ms = math.max(ends_at_ms, now_ms) + tonumber(ARGV[1]) - now_ms
-- Never shorter than before: tokens issued under a later end are still about.
if redis.call('PTTL', KEYS[4]) < keep_ms then
  redis.call('PEXPIRE', KEYS[4], integer(keep_ms))
end
-- A unit that the row says is sold was never there: to give it on would refuse the line one by one.
if sale and not phantom then give_units(sale, now_ms) end
return released
