-- release: end reservations and orders; their units go to the waiting list, or back on sale.
--
-- A unit is freed only if its field still holds this order id: a repeated release would otherwise
-- delete a newer reservation of the same buyer.
--
-- The copy of an ended row goes too: Redis may have been unable to drop it before the row changed.
--
-- KEYS[1…6]  the contents of the ledger (read_ledger)
-- KEYS[7]    copies  hash  order id -> what its row says  KEYS[8] the other one
-- KEYS[9]    sale    hash  (newer_format): a newer release finds what was not given back
-- ARGV[1]  milliseconds to keep `ended` after the sale's end, or after now if that is later
-- ARGV[2…] groups of six: order id, user id, unit, reason, the live order id that takes the unit or
--          '', and 1 if the buyer had an order, which may bar another
--
-- Returns how many units went to the waiting list.
-- @include read_ledger
-- @include now_in_ms
-- @include integer
-- @include give_units
-- @include unset_plain
-- @include drop_wrong_type
-- @include newer_format

if newer_format(KEYS[9]) then return 0 end
local oversold = false
for i = 7, 8 do drop_wrong_type(KEYS[i], 'hash') end
-- Even if another key has a wrong type, which later calls then see as well.
local state = read_sale()
if state then unset_plain(state) end
local sale = read_ledger()
for i = 2, #ARGV, 6 do
  local order_id, user_id, unit = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local reason, live_order_id = ARGV[i + 3], ARGV[i + 4]
  local field = user_id .. ':' .. unit
  if redis.call('HGET', KEYS[1], field) == order_id then
    if live_order_id ~= '' then
      redis.call('HSET', KEYS[1], field, live_order_id)
    else
      redis.call('HDEL', KEYS[1], field)
    end
  end
  oversold = oversold or reason == 'sold_out'
  redis.call('ZREM', KEYS[2], order_id .. ':' .. field)
  redis.call('HSET', KEYS[3], order_id, user_id .. ':' .. reason)
  redis.call('HDEL', KEYS[4], order_id)
  redis.call('HDEL', KEYS[7], order_id)
  redis.call('HDEL', KEYS[8], order_id)
  if sale and ARGV[i + 5] == '1' then redis.call('HSET', KEYS[5], user_id, order_id) end
end

local now_ms = now_in_ms()
local ends_at_ms = sale and tonumber(sale.ends_at_ms) or 0
local keep_ms = math.max(ends_at_ms, now_ms) + tonumber(ARGV[1]) - now_ms
-- Never shorten it: tokens issued under a later end are still valid.
if redis.call('PTTL', KEYS[3]) < keep_ms then
  redis.call('PEXPIRE', KEYS[3], integer(keep_ms))
end
-- The row had no such unit. If it were passed on, the waiting buyers would be refused one by one.
if not sale or oversold then return 0 end
return give_units(sale, now_ms)
