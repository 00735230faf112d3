-- join_waiting: put a buyer in the waiting list, or say why not.
--
-- KEYS     the contents
-- ARGV[1]  order id  ARGV[2] user id  ARGV[3] milliseconds since 1970 of joining
-- ARGV[4]  1: the buyer was in line, which was lost: neither a free unit nor the begin is in the way
--
-- Returns {code, order id, place}
--   WAITING          the place in line, from 1; also where the buyer was in it already
--   ACCEPTED         the order id has had its unit since, or has ended
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--   AVAILABLE        a unit is free and nobody waits: it is to be bought
--   NOT_LOADED  NOT_STARTED  ENDED

local order_id, user_id = ARGV[1], ARGV[2]
local sale = read_ledger()
if not sale then return {'NOT_LOADED', '', 0} end

local free_unit, held_id, held = units_of(sale, user_id)
for unit = 1, tonumber(sale.limit) do
  if held[unit] == order_id then return {'ACCEPTED', order_id, 0} end
end
local ended = redis.call('HGET', KEYS[4], order_id)
if ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':' then
  return {'ACCEPTED', order_id, 0}
end
held_id = not free_unit and held_id or barred_for(sale, user_id)
if held_id then return {'ALREADY_ORDERED', held_id, 0} end

local now_ms = now_in_ms()
if now_ms >= tonumber(sale.ends_at_ms) then return {'ENDED', '', 0} end
local was_in_line = ARGV[4] == '1'
if now_ms < tonumber(sale.begins_at_ms) and not was_in_line then return {'NOT_STARTED', '', 0} end
local member = order_id .. ':' .. user_id
local place = redis.call('ZRANK', KEYS[7], member)
if not place then
  if not was_in_line and free_units(sale) > 0 and sale.paused == '0' and redis.call('ZCARD', KEYS[7]) == 0 then
    return {'AVAILABLE', '', 0}
  end
  redis.call('ZADD', KEYS[7], ARGV[3], member)
  place = redis.call('ZRANK', KEYS[7], member)
end
return {'WAITING', order_id, place + 1}
