-- snapshot: a sale's figures at one moment. Writes nothing.
--
-- KEYS[1]  sale  KEYS[2] buyers  KEYS[3] pending  KEYS[4] ended  KEYS[5] tries
--
-- Returns {now_ms} where the ledger is not loaded, else
--   {now_ms, epoch, total, begins_at_ms, ends_at_ms, limit, paused, loaded_at_ms,
--    taken, pending, oldest pending in ms or 0}, all as strings or integers

local now_ms = integer(now_in_ms())
local sale = read_ledger(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5])
if not sale then return {now_ms} end
local oldest = redis.call('ZRANGE', KEYS[3], 0, 0, 'WITHSCORES')
return {now_ms, sale.epoch, sale.total, sale.begins_at_ms, sale.ends_at_ms, sale.limit,
  sale.paused, sale.loaded_at_ms, redis.call('HLEN', KEYS[2]) - 1,
  redis.call('ZCARD', KEYS[3]), oldest[2] or '0'}
