-- @include has_type
-- Delete a key that is not as its scripts leave it: of another type or without a TTL (a mistyped
-- command), or with a longer TTL than they give it (the clock of Redis went back). Add one of another
-- type to `wrong`.
local function repair_key(wrong, key, wanted, longest_ms)
  local left = redis.call('PTTL', key)
  if not has_type(key, wanted) then wrong[#wrong + 1] = key end
  if left == -1 or left > longest_ms or wrong[#wrong] == key then redis.call('DEL', key) end
end
