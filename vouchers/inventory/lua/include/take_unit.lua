-- @include integer
-- @include free_units
-- Give a buyer a unit and add the pending entry of its order, both at once.
local function take_unit(sale, order_id, user_id, unit, now_ms)
  local field = user_id .. ':' .. unit
  redis.call('HSET', KEYS[2], field, order_id)
  redis.call('ZADD', KEYS[3], integer(now_ms), order_id .. ':' .. field)
  redis.call('ZREM', KEYS[7], order_id .. ':' .. user_id)
  -- Later buyers are told when the last unit went.
  if free_units(sale) <= 0 then redis.call('HSET', KEYS[1], 'sold_out_at_ms', integer(now_ms)) end
end
