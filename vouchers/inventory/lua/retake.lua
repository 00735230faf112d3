-- retake: take the buyer's units back for orders that were set aside, or return why not.
--
-- The caller holds the sale's row and the orders' FOR UPDATE, and makes the orders live in the same
-- transaction. Everything is checked before anything is written: either all are taken, or none.
--
-- KEYS     the contents of the ledger (read_ledger)
-- ARGV     pairs, one for each order: <user>:<unit>, order id
--
-- Returns {code, order id}
--   RETAKEN     each order holds its unit, by this or an earlier call; its end and tries are cleared
--   PENDING     this order is still pending: its release is still to come and would undo this
--   TAKEN       the order id that holds the buyer's unit instead
--   SOLD_OUT    too few units are left
--   NOT_LOADED  the ledger is not loaded
-- @include read_ledger
-- @include free_units
-- @include digits_or_nil

local sale = read_ledger()
if not sale then return {'NOT_LOADED', ''} end

local missing = 0
for i = 1, #ARGV, 2 do
  local field, order_id = ARGV[i], ARGV[i + 1]
  local held = digits_or_nil(redis.call('HGET', KEYS[1], field))
  if held and held ~= order_id then return {'TAKEN', held} end
  if redis.call('ZSCORE', KEYS[2], order_id .. ':' .. field) then return {'PENDING', order_id} end
  if not held then missing = missing + 1 end
end
if missing > math.max(free_units(sale), 0) then return {'SOLD_OUT', ''} end

for i = 1, #ARGV, 2 do
  local field, order_id = ARGV[i], ARGV[i + 1]
  redis.call('HSET', KEYS[1], field, order_id)
  redis.call('HDEL', KEYS[3], order_id)
  redis.call('HDEL', KEYS[4], order_id)
end
return {'RETAKEN', ARGV[2]}
