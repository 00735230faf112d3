-- Return whether nobody holds a lock. A key of another type comes from a mistyped command and is
-- deleted, or nobody would get the lock ever again.
local function is_free(name)
  local kind = redis.call('TYPE', name).ok
  if kind == 'string' then
    return false
  end
  if kind ~= 'none' then
    redis.call('DEL', name)
  end
  return true
end
