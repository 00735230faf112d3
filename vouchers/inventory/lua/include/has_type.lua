-- Return whether a key is of this type, or missing.
local function has_type(key, wanted)
  local found = redis.call('TYPE', key)['ok']
  return found == wanted or found == 'none'
end
