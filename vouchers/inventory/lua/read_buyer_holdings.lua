-- read_buyer_holdings: read what one buyer holds in a sale's ledger, at one moment. Writes nothing.
--
-- KEYS[1]  buyers   KEYS[2]  pending
-- ARGV[1]  user id  ARGV[2]  the highest possible unit
--
-- Returns {now_ms}, followed for each unit held by three numbers as strings:
--   the unit, its order id, and its queue position from 1, or 0 if it is not pending
-- @include now_in_ms
-- @include integer
-- @include digits_or_nil

local fields, reply = {}, {integer(now_in_ms())}
for unit = 1, tonumber(ARGV[2]) do
  fields[unit] = ARGV[1] .. ':' .. unit
end
local held = redis.call('HMGET', KEYS[1], unpack(fields))
for unit, field in ipairs(fields) do
  if digits_or_nil(held[unit]) then
    local ahead = redis.call('ZRANK', KEYS[2], held[unit] .. ':' .. field)
    reply[#reply + 1] = integer(unit)
    reply[#reply + 1] = held[unit]
    reply[#reply + 1] = integer(ahead and ahead + 1 or 0)
  end
end
return reply
