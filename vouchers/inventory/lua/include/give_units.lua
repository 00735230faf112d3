-- @include read_units
-- @include buyer_units
-- @include barring_order
-- @include free_units
-- @include take_unit
-- @include note_last_unit
-- @include integer
-- @include gives_until
-- One call gives at most this many units, so that no script runs for long.
local MAX_UNITS_GIVEN = 1000

-- Give free units to the waiting list in its order, while the sale is open, and return how many. An
-- entry whose buyer may have no unit is dropped.
local function give_units(sale, now_ms)
  if sale.paused == '1' or now_ms < tonumber(sale.begins_at_ms)
      or now_ms >= gives_until(sale) then
    return 0
  end
  local free, given = free_units(sale), 0
  local last = math.max(free - MAX_UNITS_GIVEN, 0)
  while free > last do
    local first = redis.call('ZPOPMIN', KEYS[6])[1]
    if not first then break end
    local order_id, user_id = string.match(first, '^(%d+):(%d+)$')
    local unit = user_id and not barring_order(sale, user_id)
      and buyer_units(read_units(user_id, sale.limit))
    if unit then
      take_unit(order_id, user_id, unit, integer(now_ms))
      if free == 1 then note_last_unit(sale, integer(now_ms)) end
      free, given = free - 1, given + 1
    end
  end
  return given
end
