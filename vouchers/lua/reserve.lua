-- reserve: accept one buyer of a sale, or refuse by name.
--
-- Times are Redis TIME in milliseconds. Ids are strings: a Lua number is a double.
-- Nothing is written before everything has been read and found right, because a script that
-- fails keeps its earlier writes.
--
-- KEYS[1]  sale     hash    total, begins_at_ms, ends_at_ms, limit, paused, epoch
-- KEYS[2]  buyers   hash    <user>:<unit> -> order id; the field "epoch" is the sentinel
-- KEYS[3]  pending  zset    <order id>:<user>:<unit> by the time it was accepted
-- KEYS[4]  ended    hash    order id -> <user>:<reason>
-- KEYS[5]  kick     string  a fulfil task is on its way
-- ARGV[1]  order id
-- ARGV[2]  user id
-- ARGV[3]  milliseconds that a kick stands
--
-- Returns {code, order id, kick}
--   ACCEPTED         the order id it was called with, now or in an earlier call; kick is 1 where
--                    the caller must publish a fulfil task
--   ALREADY_ORDERED  the order id that the buyer holds
--   NOT_LOADED  PAUSED  NOT_STARTED  ENDED  SOLD_OUT

local order_id, user_id, kick_ms = ARGV[1], ARGV[2], ARGV[3]

-- A key of a wrong type is as good as none: the ledger is then built again.
local sale = redis.pcall('HMGET', KEYS[1],
  'epoch', 'total', 'limit', 'paused', 'begins_at_ms', 'ends_at_ms')
if sale.err then return {'NOT_LOADED'} end
for i = 1, 6 do
  if not sale[i] then return {'NOT_LOADED'} end
end
local epoch, total, limit = sale[1], tonumber(sale[2]), tonumber(sale[3])
local begins_at_ms, ends_at_ms = tonumber(sale[5]), tonumber(sale[6])

local fields = {'epoch'}
for unit = 1, limit do
  fields[unit + 1] = user_id .. ':' .. unit
end
local held = redis.pcall('HMGET', KEYS[2], unpack(fields))
-- Lost buyers would look like an unsold sale, so the sentinel has to be this epoch's.
if held.err or held[1] ~= epoch then return {'NOT_LOADED'} end

local free_unit, held_id
for unit = 1, limit do
  local id = held[unit + 1]
  if id == order_id then return {'ACCEPTED', order_id, 0} end
  if id then
    held_id = held_id or id
  else
    free_unit = free_unit or unit
  end
end
local ended = redis.pcall('HGET', KEYS[4], order_id)
if type(ended) == 'table' then return {'NOT_LOADED'} end
-- Accepted once and over since: the receipt tells the rest.
if ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':' then
  return {'ACCEPTED', order_id, 0}
end
if not free_unit then return {'ALREADY_ORDERED', held_id} end

local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
if now_ms >= ends_at_ms then return {'ENDED'} end
if sale[4] ~= '0' then return {'PAUSED'} end
if now_ms < begins_at_ms then return {'NOT_STARTED'} end
if redis.call('HLEN', KEYS[2]) - 1 >= total then return {'SOLD_OUT'} end

local pending_type = redis.call('TYPE', KEYS[3])['ok']
if pending_type ~= 'zset' and pending_type ~= 'none' then return {'NOT_LOADED'} end

redis.call('HSET', KEYS[2], user_id .. ':' .. free_unit, order_id)
redis.call('ZADD', KEYS[3], string.format('%.0f', now_ms),
  order_id .. ':' .. user_id .. ':' .. free_unit)
local kicked = redis.call('SET', KEYS[5], '1', 'NX', 'PX', kick_ms)
return {'ACCEPTED', order_id, kicked and 1 or 0}
