-- @include digits_or_nil
-- Return a buyer's free units, and one order id that the buyer holds or nil. `units` is from read_units.
local function spare_units(units)
  local spare, held_id = {}, nil
  for unit = 1, #units do
    local held = digits_or_nil(units[unit])
    if held then held_id = held_id or held else spare[#spare + 1] = unit end
  end
  return spare, held_id
end
