-- claim: a set-aside order takes its buyer's unit again, or is refused by name.
--
-- The caller holds the sale's row and the order's FOR UPDATE, and makes the order live in the same
-- transaction. Nothing is written before everything has been read and found right.
--
-- KEYS     the contents
-- ARGV[1]  <user>:<unit>
-- ARGV[2]  order id
--
-- Returns {code, order id}
--   CLAIMED   the unit is this order's, now or since an earlier call; its end and tries are forgotten
--   PENDING   this very order is still pending: its release is on its way and would undo the claim
--   TAKEN     the order id that stands at the buyer's unit instead
--   SOLD_OUT  NOT_LOADED

local field, order_id = ARGV[1], ARGV[2]

local sale = read_ledger()
if not sale then return {'NOT_LOADED', ''} end

local held = redis.call('HGET', KEYS[2], field)
if held and held ~= order_id then return {'TAKEN', held} end
if redis.call('ZSCORE', KEYS[3], order_id .. ':' .. field) then return {'PENDING', order_id} end
if not held and redis.call('HLEN', KEYS[2]) - 1 >= tonumber(sale.total) then
  return {'SOLD_OUT', ''}
end

redis.call('HSET', KEYS[2], field, order_id)
redis.call('HDEL', KEYS[4], order_id)
redis.call('HDEL', KEYS[5], order_id)
return {'CLAIMED', order_id}
