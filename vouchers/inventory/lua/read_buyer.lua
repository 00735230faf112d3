-- read_buyer: read what one buyer has in a loaded sale, at one moment. Writes nothing.
--
-- KEYS[1..7]  the contents of the ledger (read_ledger)  KEYS[8..9] the copies of rows
-- ARGV[1]     user id  ARGV[2] the highest possible unit
--
-- Returns {now_ms} if the ledger is not loaded, else, as strings or integers,
--   {now_ms, limit, ends_at_ms, identity, the ended order that bars another or 0, waiting},
--   followed for each unit held by its unit, its order id, its queue position from 1, or 0 if it
--   is not pending, and the copy of its row or ''
-- @include now_in_ms
-- @include integer
-- @include read_ledger
-- @include barring_order

local now_ms = integer(now_in_ms())
local sale = read_ledger()
if not sale then return {now_ms} end
local found = {now_ms, sale.limit, sale.ends_at_ms, sale.identity,
  barring_order(sale, ARGV[1]) or '0', redis.call('ZCARD', KEYS[7])}
local fields = {}
for unit = 1, tonumber(ARGV[2]) do
  fields[unit] = ARGV[1] .. ':' .. unit
end
local held = redis.call('HMGET', KEYS[2], unpack(fields))
for unit, field in ipairs(fields) do
  if digits_or_nil(held[unit]) then
    local ahead = redis.call('ZRANK', KEYS[3], held[unit] .. ':' .. field)
    local copy = ''
    for i = 8, 9 do
      local row = redis.pcall('HGET', KEYS[i], held[unit])
      if type(row) == 'string' then copy = row end -- an error (wrong type) is a table
    end
    found[#found + 1] = integer(unit)
    found[#found + 1] = held[unit]
    found[#found + 1] = integer(ahead and ahead + 1 or 0)
    found[#found + 1] = copy
  end
end
return found
