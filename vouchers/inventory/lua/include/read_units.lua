-- Return the order id of each unit of a buyer, or false. `first` is that of the first unit, if known.
local function read_units(user_id, limit, first)
  if limit == '1' and first ~= nil then return {first} end
  local fields = {}
  for unit = 1, tonumber(limit) do
    fields[unit] = user_id .. ':' .. unit
  end
  return redis.call('HMGET', KEYS[1], unpack(fields))
end
