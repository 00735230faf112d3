-- @include digits_or_nil
-- @include has_type
-- Return the sale's terms as strings, or nil if the ledger is not loaded or not whole.
--
-- Scripts that read a whole ledger take its contents as their first seven keys:
--   KEYS[1] sale     hash  the terms and more, field by field
--   KEYS[2] buyers   hash  <user>:<unit> -> order id; and the sentinel `epoch`
--   KEYS[3] pending  zset  <order id>:<user>:<unit> by the time it was accepted
--   KEYS[4] ended    hash  order id -> <user>:<reason>
--   KEYS[5] tries    hash  order id -> attempts to write it
--   KEYS[6] barred   hash  user -> the ended order that bars another, where the sale says so
--   KEYS[7] waiting  zset  <order id>:<user> by the time of joining the waiting list
--
-- A key of a wrong type counts as missing, and so does a term that is no number. Lost buyers would
-- look like an unsold sale: the sentinel in `buyers` must match the epoch and the
-- identity of the sale (Note [Epoch and sentinel] in rebuild.py).
local function read_ledger()
  if not (has_type(KEYS[1], 'hash') and has_type(KEYS[2], 'hash') and has_type(KEYS[3], 'zset')
      and has_type(KEYS[4], 'hash') and has_type(KEYS[5], 'hash') and has_type(KEYS[6], 'hash')
      and has_type(KEYS[7], 'zset')) then
    return nil
  end
  local names = {'epoch', 'total', 'begins_at_ms', 'ends_at_ms', 'limit', 'paused', 'rebuy',
    'loaded_at_ms', 'batch', 'identity'}
  local values = redis.call('HMGET', KEYS[1], unpack(names))
  local sale = {}
  for i, name in ipairs(names) do
    if not digits_or_nil(values[i]) then return nil end
    sale[name] = values[i]
  end
  local sentinel = sale.epoch .. ':' .. sale.identity
  if redis.call('HGET', KEYS[2], 'epoch') ~= sentinel then return nil end
  return sale
end
