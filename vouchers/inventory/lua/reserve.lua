-- reserve: accept one buyer of a sale, or refuse by name.
--
-- Times are Redis TIME in milliseconds. Ids are strings: a Lua number is a double.
-- Nothing is written before everything has been read and found right, because a script that
-- fails keeps its earlier writes.
--
-- KEYS[1…7]  the contents
-- KEYS[8]    kick  string  a fulfil task is on its way
-- ARGV[1]  order id
-- ARGV[2]  user id
-- ARGV[3]  milliseconds that a kick stands
-- ARGV[4]  the age in ms of the oldest pending entry from which nobody new is accepted; 0 = any age
--
-- Returns {code, order id, kick}
--   ACCEPTED         the order id it was called with, now or in an earlier call; kick is 1 where
--                    the caller must publish a fulfil task
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--   BEHIND           in the second place the age in ms of the oldest pending entry: orders are
--                    written too slowly, and who is not accepted now need not be dropped later
--   SOLD_OUT         when this request arrived, and when the last unit went or "", both in ms
--   NOT_LOADED  PAUSED  NOT_STARTED  ENDED

local order_id, user_id, kick_ms = ARGV[1], ARGV[2], ARGV[3]

local function kicked()
  return redis.call('SET', KEYS[8], '1', 'NX', 'PX', kick_ms) and 1 or 0
end

local sale = read_ledger()
if not sale then return {'NOT_LOADED'} end

local free_unit, held_id, held = units_of(sale, user_id)
for unit = 1, tonumber(sale.limit) do
  if held[unit] == order_id then return {'ACCEPTED', order_id, 0} end
end
-- Accepted once and over since: the receipt tells the rest.
local ended = redis.call('HGET', KEYS[4], order_id)
if ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':' then
  return {'ACCEPTED', order_id, 0}
end
if not free_unit then return {'ALREADY_ORDERED', held_id} end
local bars = barred_for(sale, user_id)
if bars then return {'ALREADY_ORDERED', bars} end

local now_ms = now_in_ms()
if now_ms >= tonumber(sale.ends_at_ms) then return {'ENDED'} end
if sale.paused ~= '0' then return {'PAUSED'} end
if now_ms < tonumber(sale.begins_at_ms) then return {'NOT_STARTED'} end
if free_units(sale) > 0 and redis.call('ZCARD', KEYS[7]) > 0 then
  give_units(sale, now_ms) -- who waits was here first
  free_unit, held_id, held = units_of(sale, user_id)
  for unit = 1, tonumber(sale.limit) do
    if held[unit] == order_id then return {'ACCEPTED', order_id, kicked()} end
  end
  if not free_unit then return {'ALREADY_ORDERED', held_id} end
end
if free_units(sale) <= redis.call('ZCARD', KEYS[7]) then
  return {'SOLD_OUT', integer(now_ms), redis.call('HGET', KEYS[1], 'sold_out_at_ms') or ''}
end
if tonumber(ARGV[4]) > 0 then
  local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
  if oldest and now_ms - oldest > tonumber(ARGV[4]) then return {'BEHIND', integer(now_ms - oldest)} end
end

take_unit(sale, order_id, user_id, free_unit, now_ms)
return {'ACCEPTED', order_id, kicked()}
