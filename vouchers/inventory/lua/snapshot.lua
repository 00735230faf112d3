-- snapshot: read a sale's terms and counts at one moment. Writes nothing.
--
-- KEYS     the contents of the ledger (read_ledger)
-- ARGV[1]  the least score of an entry that is set aside; it is pending, too
--
-- Returns {now_ms} if the ledger is not loaded, else
--   {now_ms, epoch, total, begins_at_ms, ends_at_ms, limit, paused, rebuy, identity, loaded_at_ms,
--    taken, pending, oldest pending in ms or 0, waiting, set aside}, all as strings or integers
-- @include now_in_ms
-- @include integer
-- @include read_ledger

local now_ms = integer(now_in_ms())
local sale = read_ledger()
if not sale then return {now_ms} end
local oldest = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '(' .. ARGV[1], 'WITHSCORES',
  'LIMIT', 0, 1)
return {now_ms, string.match(sale.build, '^%d+'), sale.total, sale.begins_at_ms,
  sale.ends_at_ms, sale.limit, sale.paused, sale.rebuy, sale.identity, sale.loaded_at_ms,
  redis.call('HLEN', KEYS[1]) - 1, redis.call('ZCARD', KEYS[2]), oldest[2] or '0', redis.call('ZCARD', KEYS[6]),
  redis.call('ZCOUNT', KEYS[2], ARGV[1], '+inf')}
