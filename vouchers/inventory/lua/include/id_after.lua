-- @include integer
-- Return the order id that comes so many ids after this one, which a Lua number cannot hold.
local function id_after(order_id, count)
  local head, tail = string.sub(order_id, 1, -10), string.sub(order_id, -9) + count
  if head == '' then return integer(tail) end
  if tail >= 1000000000 then head, tail = integer(head + 1), tail - 1000000000 end
  return head .. string.format('%09d', tail)
end
