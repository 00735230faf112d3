-- @include digits_or_nil
-- Return a buyer's first free unit or nil, one order id that the buyer holds or nil, and the order
-- id at each unit or nil (Note [Units of a buyer] in orders/models/orders.py).
local function buyer_units(sale, user_id)
  local fields = {}
  for unit = 1, tonumber(sale.limit) do
    fields[unit] = user_id .. ':' .. unit
  end
  local held = redis.call('HMGET', KEYS[2], unpack(fields))
  local free_unit, held_id
  for unit = 1, #fields do
    held[unit] = digits_or_nil(held[unit])
    if held[unit] then
      held_id = held_id or held[unit]
    else
      free_unit = free_unit or unit
    end
  end
  return free_unit, held_id, held
end
