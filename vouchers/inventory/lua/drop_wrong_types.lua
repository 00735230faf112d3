-- drop_wrong_types: delete the keys of a sale that have a wrong type, which comes from a mistyped command.
--
-- KEYS     the keys of the sale; first `buyers`, and then the others that a build makes again; KEYS[7] is
--          `sale` (newer_format)
-- ARGV[1]  how many keys a build makes again: without one of them the ledger is closed, to be built
-- ARGV[2…] the type of each key
--
-- Returns the keys that were deleted.
-- @include has_type
-- @include newer_format

local dropped, is_broken = {}, false
if newer_format(KEYS[7]) then return dropped end
for i, key in ipairs(KEYS) do
  if not has_type(key, ARGV[i + 1]) then
    redis.call('UNLINK', key)
    dropped[#dropped + 1] = key
    is_broken = is_broken or i <= tonumber(ARGV[1])
  end
end
if is_broken then redis.call('HDEL', KEYS[1], 'state') end
return dropped
