-- reserve: accept one buyer of a sale, or refuse by name.
--
-- Times are Redis TIME in milliseconds. Ids are strings: a Lua number is a double.
-- Nothing is written before everything has been read and found right, because a script that
-- fails keeps its earlier writes.
--
-- KEYS[1]  sale     hash    total, begins_at_ms, ends_at_ms, limit, paused, epoch, loaded_at_ms
-- KEYS[2]  buyers   hash    <user>:<unit> -> order id; the field "epoch" is the sentinel
-- KEYS[3]  pending  zset    <order id>:<user>:<unit> by the time it was accepted
-- KEYS[4]  ended    hash    order id -> <user>:<reason>
-- KEYS[5]  tries    hash    order id -> attempts; only its type is looked at
-- KEYS[6]  kick     string  a fulfil task is on its way
-- ARGV[1]  order id
-- ARGV[2]  user id
-- ARGV[3]  milliseconds that a kick stands
-- ARGV[4]  the age in ms of the oldest pending entry from which nobody new is accepted; 0 = any age
--
-- Returns {code, order id, kick}
--   ACCEPTED         the order id it was called with, now or in an earlier call; kick is 1 where
--                    the caller must publish a fulfil task
--   ALREADY_ORDERED  the order id that the buyer holds
--   BEHIND           in the second place the age in ms of the oldest pending entry: orders are
--                    written too slowly, and who is not accepted now need not be dropped later
--   NOT_LOADED  PAUSED  NOT_STARTED  ENDED  SOLD_OUT

local order_id, user_id, kick_ms = ARGV[1], ARGV[2], ARGV[3]

local sale = read_ledger(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
if not sale then return {'NOT_LOADED'} end

local fields = {}
for unit = 1, tonumber(sale.limit) do
  fields[unit] = user_id .. ':' .. unit
end
local held = redis.call('HMGET', KEYS[2], unpack(fields))
local free_unit, held_id
for unit = 1, #fields do
  if held[unit] == order_id then return {'ACCEPTED', order_id, 0} end
  if held[unit] then
    held_id = held_id or held[unit]
  else
    free_unit = free_unit or unit
  end
end
-- Accepted once and over since: the receipt tells the rest.
local ended = redis.call('HGET', KEYS[4], order_id)
if ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':' then
  return {'ACCEPTED', order_id, 0}
end
if not free_unit then return {'ALREADY_ORDERED', held_id} end

local now_ms = now_in_ms()
if now_ms >= tonumber(sale.ends_at_ms) then return {'ENDED'} end
if sale.paused ~= '0' then return {'PAUSED'} end
if now_ms < tonumber(sale.begins_at_ms) then return {'NOT_STARTED'} end
if redis.call('HLEN', KEYS[2]) - 1 >= tonumber(sale.total) then return {'SOLD_OUT'} end
if tonumber(ARGV[4]) > 0 then
  local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')[2]
  if oldest and now_ms - oldest > tonumber(ARGV[4]) then return {'BEHIND', integer(now_ms - oldest)} end
end

redis.call('HSET', KEYS[2], fields[free_unit], order_id)
redis.call('ZADD', KEYS[3], integer(now_ms), order_id .. ':' .. fields[free_unit])
local kicked = redis.call('SET', KEYS[6], '1', 'NX', 'PX', kick_ms)
return {'ACCEPTED', order_id, kicked and 1 or 0}
