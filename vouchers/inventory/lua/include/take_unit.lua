-- Give a buyer a unit and add the pending entry of its order, both at once.
local function take_unit(order_id, user_id, unit, now)
  local field = user_id .. ':' .. unit
  redis.call('HSET', KEYS[1], field, order_id)
  redis.call('ZADD', KEYS[2], now, order_id .. ':' .. field)
end
