-- snapshot: read a sale's terms and counts at one moment. Writes nothing.
--
-- KEYS[1…6]  the contents of the ledger (read_ledger)  KEYS[7] room (visit_room)
-- KEYS[8]    entries (read_entries)  KEYS[9] sale (newer_format)  KEYS[10] price, if it is asked for
-- ARGV[1]  the least score of an entry that is set aside; it is pending, too
--
-- Returns {now_ms} if the ledger is not loaded, else
--   {now_ms, epoch, total, begins_at_ms, ends_at_ms, limit, paused, rebuy, identity, loaded_at_ms,
--    taken, pending, oldest pending in ms or 0, waiting, set aside, entries in the draw, terms of the
--    waiting room or of the draw or '', the last number in the line, the last one before the start or '',
--    price in cents or ''},
--    as strings or integers
-- @include now_in_ms
-- @include integer
-- @include read_ledger
-- @include digits_or_nil
-- @include newer_format

local now_ms = integer(now_in_ms())
local sale = read_ledger()
if not sale or newer_format(KEYS[9]) then return {now_ms} end
local oldest = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '(' .. ARGV[1], 'WITHSCORES',
  'LIMIT', 0, 1)
local line = {}
if sale.mode_terms ~= '' and has_type(KEYS[7], 'hash') then
  local of_line = redis.call('HMGET', KEYS[7], 'opened', 'tail', 'early')
  if of_line[1] == string.match(sale.mode_terms, '^%d+') then line = of_line end
end
local entries = 0
if string.sub(sale.mode_terms, -1) == 'd' and has_type(KEYS[8], 'hash') then
  entries = math.max(0, redis.call('HLEN', KEYS[8]) - 3) -- build, phase and seq
end
return {now_ms, string.match(sale.build, '^%d+'), sale.total, sale.begins_at_ms,
  sale.ends_at_ms, sale.limit, sale.paused, sale.rebuy, sale.identity, sale.loaded_at_ms,
  redis.call('HLEN', KEYS[1]) - 1, redis.call('ZCARD', KEYS[2]), oldest[2] or '0', redis.call('ZCARD', KEYS[6]),
  redis.call('ZCOUNT', KEYS[2], ARGV[1], '+inf'), entries, sale.mode_terms,
  digits_or_nil(line[2]) or '0', digits_or_nil(line[3]) or '',
  KEYS[10] and digits_or_nil(redis.call('MGET', KEYS[10])[1]) or ''}
