-- snapshot: a sale's figures at one moment. Writes nothing.
--
-- KEYS[1]  sale     hash
-- KEYS[2]  buyers   hash
-- KEYS[3]  pending  zset
--
-- Returns {now_ms} where the ledger is not loaded, else
--   {now_ms, epoch, total, begins_at_ms, ends_at_ms, limit, paused, loaded_at_ms,
--    taken, pending, oldest pending in ms or 0}, all as strings or integers

local time = redis.call('TIME')
local now_ms = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))

local sale = redis.pcall('HMGET', KEYS[1],
  'epoch', 'total', 'begins_at_ms', 'ends_at_ms', 'limit', 'paused', 'loaded_at_ms')
if sale.err then return {now_ms} end
for i = 1, 7 do
  if not sale[i] then return {now_ms} end
end
local sentinel = redis.pcall('HGET', KEYS[2], 'epoch')
if type(sentinel) ~= 'string' or sentinel ~= sale[1] then return {now_ms} end
local pending = redis.pcall('ZCARD', KEYS[3])
if type(pending) == 'table' then return {now_ms} end
local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
return {now_ms, sale[1], sale[2], sale[3], sale[4], sale[5], sale[6], sale[7],
  redis.call('HLEN', KEYS[2]) - 1, pending, oldest[2] or '0'}
