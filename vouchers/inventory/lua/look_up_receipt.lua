-- look_up_receipt: find one order of one buyer. Writes nothing.
--
-- KEYS[1]  copies  hash  order id -> what its row says  KEYS[2] the other one
-- KEYS[3]  buyers  KEYS[4] pending
-- ARGV[1]  user id  ARGV[2]  order id  ARGV[3]  the highest possible unit
--
-- Returns {code, …}
--   WRITTEN    what the order's row says
--   PENDING    its queue position from 1, as a string
--   ELSEWHERE  neither: only the database can tell
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
return {'ELSEWHERE'}
