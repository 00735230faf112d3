-- retake: take the buyer's unit back for an order that was set aside, or return why not.
--
-- The caller holds the sale's row and the order's FOR UPDATE, and makes the order live in the same
-- transaction. Everything is checked before anything is written.
--
-- KEYS     the contents of the ledger (read_ledger)
-- ARGV[1]  <user>:<unit>
-- ARGV[2]  order id
--
-- Returns {code, order id}
--   RETAKEN     the order holds the unit, by this or an earlier call; its end and tries are cleared
--   PENDING     this order is still pending: its release is still to come and would undo this
--   TAKEN       the order id that holds the buyer's unit instead
--   SOLD_OUT    no unit is left
--   NOT_LOADED  the ledger is not loaded
-- @include read_ledger
-- @include free_units
-- @include digits_or_nil

local field, order_id = ARGV[1], ARGV[2]

local sale = read_ledger()
if not sale then return {'NOT_LOADED', ''} end

local held = digits_or_nil(redis.call('HGET', KEYS[1], field))
if held and held ~= order_id then return {'TAKEN', held} end
if redis.call('ZSCORE', KEYS[2], order_id .. ':' .. field) then return {'PENDING', order_id} end
if not held and free_units(sale) <= 0 then return {'SOLD_OUT', ''} end

redis.call('HSET', KEYS[1], field, order_id)
redis.call('HDEL', KEYS[3], order_id)
redis.call('HDEL', KEYS[4], order_id)
return {'RETAKEN', order_id}
