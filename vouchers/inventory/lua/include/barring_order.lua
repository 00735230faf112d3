-- @include digits_or_nil
-- Return the ended order that bars this buyer from another, or nil.
--
-- A sale with rebuy = 1 bars nobody (Note [Ended orders] in orders/models/orders.py).
local function barring_order(sale, user_id)
  if sale.rebuy == '1' then return nil end
  return digits_or_nil(redis.call('HGET', KEYS[5], user_id))
end
