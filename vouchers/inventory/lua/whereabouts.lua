-- whereabouts: where one order of one buyer stands. Writes nothing.
--
-- KEYS[1]  copies  hash  order id -> what its row says  KEYS[2] the other one
-- KEYS[3]  buyers  KEYS[4] pending
-- ARGV[1]  user id  ARGV[2]  order id  ARGV[3]  the largest unit there may be
--
-- Returns {'WRITTEN', <what the row says>}, {'PENDING', <place in the queue from 1 on, as a string>}
-- or {'ELSEWHERE'}: only the database can tell.

for i = 1, 2 do
  local row = redis.pcall('HGET', KEYS[i], ARGV[2])
  if type(row) == 'string' then return {'WRITTEN', row} end -- a key of a wrong type has none
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
