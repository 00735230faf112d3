-- @include write_state
-- Give a buyer a unit and add the pending entry of its order, both at once. `free` counts the units
-- that are left before.
local function take_unit(sale, order_id, user_id, unit, now, free)
  local field = user_id .. ':' .. unit
  redis.call('HSET', KEYS[2], field, order_id)
  redis.call('ZADD', KEYS[3], now, order_id .. ':' .. field)
  if not sale.plain then redis.call('ZREM', KEYS[7], order_id .. ':' .. user_id) end
  -- Later buyers are told when the last unit went.
  if free <= 1 then
    sale.sold_out_at_ms = now
    write_state(sale)
  end
end
