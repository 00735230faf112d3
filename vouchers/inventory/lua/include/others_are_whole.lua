-- @include has_type
-- Return whether the keys that few buyers need have their types, or are missing.
local function others_are_whole()
  return has_type(KEYS[3], 'hash') and has_type(KEYS[4], 'hash')
    and has_type(KEYS[5], 'hash') and has_type(KEYS[6], 'zset')
end
