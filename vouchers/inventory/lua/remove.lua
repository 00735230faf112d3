-- remove: take the ledger of a sale that is long over out of Redis, or say what stands against it.
--
-- Everything is decided in one step: what is pending, or in no row yet, would be lost with the ledger.
-- Safe to repeat. UNLINK, because DEL of a million fields blocks Redis for 0.4 s.
--
-- KEYS      the keys of the sale (LedgerKeys.movable) and then its fence; those that are read:
--   KEYS[2] buyers  KEYS[3] pending  KEYS[7] waiting  KEYS[11] tally  KEYS[14] visits  KEYS[18] fresh
-- ARGV[1]   epoch of the row: a ledger of this one or a later was built since the row was read
-- ARGV[2]   live orders of the row; '' if the ledger was removed before: then only pending counts
--
-- Returns '' if no key is left, or in words what the ledger has, for the log.
-- @include newer_format

local function size(key)
  local kind = redis.call('TYPE', key)['ok']
  if kind == 'hash' then return redis.call('HLEN', key) end
  if kind == 'zset' then return redis.call('ZCARD', key) end
  return redis.call('EXISTS', key) -- a wrong type counts as one
end

local state = redis.pcall('HGET', KEYS[2], 'state') -- of a wrong type: an error, which is a table
local epoch = type(state) == 'string' and string.match(state, '^%d+')
if newer_format(KEYS[1]) then return 'a newer format' end
if epoch and tonumber(epoch) >= tonumber(ARGV[1]) then return 'a newer build' end
if size(KEYS[3]) > 0 then return 'pending entries' end
if ARGV[2] ~= '' then
  if size(KEYS[7]) > 0 then return 'a waiting list' end
  if size(KEYS[11]) + size(KEYS[14]) + size(KEYS[18]) > 0 then
    return 'counts, visits or entries without a row'
  end
  local buyers = size(KEYS[2])
  if buyers > 0 and buyers - (type(state) == 'string' and 1 or 0) ~= tonumber(ARGV[2]) then
    return 'other buyers than there are live orders'
  end
end
redis.call('UNLINK', unpack(KEYS))
return ''
