-- Return the value of a string; for a key of another type return false instead of an error.
local function value_of(key)
  return redis.call('MGET', key)[1]
end
