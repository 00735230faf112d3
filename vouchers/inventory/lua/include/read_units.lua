-- Return the sentinel, followed for each unit of a buyer by its order id or false. Without a user
-- id, return the sentinel alone. If `buyers` has a wrong type, there is none.
local function read_units(user_id, limit)
  if not user_id then return redis.pcall('HMGET', KEYS[2], 'epoch') end
  -- What the loop does, without its table: it takes a twentieth of a refusal.
  if limit == '1' then return redis.pcall('HMGET', KEYS[2], 'epoch', user_id .. ':1') end
  local fields = {'epoch'}
  for unit = 1, tonumber(limit) do
    fields[unit + 1] = user_id .. ':' .. unit
  end
  return redis.pcall('HMGET', KEYS[2], unpack(fields))
end
