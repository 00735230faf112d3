-- @include buyer_units
-- @include barring_order
-- Return the answer for a buyer who needs no further unit or may not have one: a code and an order id.
--
--   ACCEPTED         this order id has its unit, or had it and has ended
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--
-- For any other buyer return nil, nil and the buyer's first free unit. `units` is what read_units
-- has read for this buyer.
local function check_buyer(sale, units, order_id, user_id)
  local free_unit, held_id, has_unit = buyer_units(units, order_id)
  if has_unit then return 'ACCEPTED', order_id end
  if sale.plain == '0' then
    local ended = redis.call('HGET', KEYS[3], order_id)
    if ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':' then
      return 'ACCEPTED', order_id
    end
  end
  local other_id = not free_unit and held_id
    or sale.plain == '0' and barring_order(sale, user_id)
  if other_id then return 'ALREADY_ORDERED', other_id end
  return nil, nil, free_unit
end
