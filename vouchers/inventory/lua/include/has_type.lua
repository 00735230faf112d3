-- Return whether a key is of this type, or missing.
local function has_type(key, wanted)
  local kind = redis.call('TYPE', key)['ok']
  return kind == wanted or kind == 'none'
end
