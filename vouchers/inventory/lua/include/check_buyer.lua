-- @include buyer_units
-- @include barring_order
-- Return the answer for a buyer who needs no further unit or may not have one: a code and an order id.
--
--   ACCEPTED         this order id has its unit, or had it and has ended
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--
-- For any other buyer return nil, nil and the buyer's first free unit.
local function check_buyer(sale, order_id, user_id)
  local free_unit, held_id, held = buyer_units(sale, user_id)
  for unit = 1, tonumber(sale.limit) do
    if held[unit] == order_id then return 'ACCEPTED', order_id end
  end
  local ended = redis.call('HGET', KEYS[4], order_id)
  if ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':' then
    return 'ACCEPTED', order_id
  end
  local other_id = not free_unit and held_id or barring_order(sale, user_id)
  if other_id then return 'ALREADY_ORDERED', other_id end
  return nil, nil, free_unit
end
