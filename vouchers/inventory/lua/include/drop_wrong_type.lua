-- @include has_type
-- Delete a key of another type, which comes from a mistyped command: its script makes it again.
local function drop_wrong_type(key, wanted)
  if not has_type(key, wanted) then redis.call('UNLINK', key) end
end
