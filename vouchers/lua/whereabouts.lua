-- whereabouts: where one order of one buyer stands. Writes nothing.
--
-- KEYS[1]  written  string  what the order's row says; empty while that is being changed
-- KEYS[2]  buyers   KEYS[3]  pending
-- ARGV[1]  user id  ARGV[2]  order id  ARGV[3]  the largest unit there may be
--
-- Returns {'WRITTEN', <what the row says>}, {'PENDING', <place in the queue from 1 on, as a string>}
-- or {'ELSEWHERE'}: only the database can tell.

local row = redis.call('GET', KEYS[1])
if row and row ~= '' then return {'WRITTEN', row} end
for unit = 1, tonumber(ARGV[3]) do
  local field = ARGV[1] .. ':' .. unit
  if redis.call('HGET', KEYS[2], field) == ARGV[2] then
    local ahead = redis.call('ZRANK', KEYS[3], ARGV[2] .. ':' .. field)
    if ahead then return {'PENDING', integer(ahead + 1)} end
    break
  end
end
return {'ELSEWHERE'}
