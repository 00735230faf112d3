-- put_foreign_aside: move the ledger of another sale with this id out of the way. Safe to repeat.
--
-- An id is given twice after an older backup of the database was restored.
--
-- KEYS     the keys of the sale; first the `sale` hash and `buyers`, which name the identity
-- ARGV[1]  identity of the sale
-- ARGV[2]  milliseconds for which the other ledger is kept, under the same names and `:foreign`
--
-- Returns the identity of the ledger that was moved, or '' if none was: it is this sale's own, or a
-- newer release's.
-- @include newer_format

local function field(key, name)
  return redis.call('TYPE', key)['ok'] == 'hash' and redis.call('HGET', key, name) or ''
end

local owner = string.match(field(KEYS[2], 'state'), '^%d+:(%d+) ')
  or string.match(field(KEYS[1], 'identity'), '^%d+$')
if not owner or owner == ARGV[1] or newer_format(KEYS[1]) then return '' end
for _, key in ipairs(KEYS) do
  if redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, key .. ':foreign')
    redis.call('PEXPIRE', key .. ':foreign', ARGV[2])
  end
end
return owner
