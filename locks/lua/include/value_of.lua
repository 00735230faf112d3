-- Returns the value of a string; for a key of another type false, not an error.
local function value_of(key)
  return redis.call('MGET', key)[1]
end
