-- look_up_receipt: find one order of one buyer. Writes nothing.
--
-- KEYS[1]  copies  hash  order id -> what its row says  KEYS[2] the other one
-- KEYS[3]  buyers  KEYS[4] pending  KEYS[5] entries (read_entries)
-- ARGV[1]  user id  ARGV[2]  order id  ARGV[3]  the highest possible unit
--
-- Returns {code, …}
--   WRITTEN    what the order's row says
--   PENDING    its queue position from 1, as a string
--   ENTERED    the end of the sale in ms: the entry is in a draw that has not been drawn
--   ELSEWHERE  none of these: only the database can tell
-- @include integer

for i = 1, 2 do
  local row = redis.pcall('HGET', KEYS[i], ARGV[2])
  if type(row) == 'string' then return {'WRITTEN', row} end -- an error (wrong type) is a table
end
for unit = 1, tonumber(ARGV[3]) do
  local field = ARGV[1] .. ':' .. unit
  if redis.call('HGET', KEYS[3], field) == ARGV[2] then
    local ahead = redis.call('ZRANK', KEYS[4], ARGV[2] .. ':' .. field)
    if ahead then return {'PENDING', integer(ahead + 1)} end
    break
  end
end
local entrant = redis.pcall('HMGET', KEYS[5], ARGV[1], 'phase') -- an error (wrong type) has no fields
if entrant[1] and string.match(entrant[1], '^(%d+):') == ARGV[2] and entrant[2] ~= 'drawn' then
  local state = redis.pcall('HGET', KEYS[3], 'state')
  local ends_at_ms = type(state) == 'string' and string.match(state, '^%d+:%d+ %d+ %d+ (%d+) ')
  if ends_at_ms then return {'ENTERED', ends_at_ms} end
end
return {'ELSEWHERE'}
