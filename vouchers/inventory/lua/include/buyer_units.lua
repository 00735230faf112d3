-- @include digits_or_nil
-- Return a buyer's first free unit or nil, one order id that the buyer holds or nil, and whether
-- this order id holds a unit (Note [Units of a buyer] in orders/models/orders.py).
local function buyer_units(units, order_id)
  local free_unit, held_id
  for unit = 1, #units do
    local held = digits_or_nil(units[unit])
    if held and held == order_id then return nil, held, true end
    if held then
      held_id = held_id or held
    else
      free_unit = free_unit or unit
    end
  end
  return free_unit, held_id, false
end
