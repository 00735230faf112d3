-- read_suspects: read which entries must be written alone. Writes nothing.
--
-- KEYS[1]  tries   hash    order id -> attempts that failed before
-- KEYS[2]  trying  string  order ids that a worker was writing when it died
--
-- Returns order ids, some perhaps twice.

local ids = redis.call('HKEYS', KEYS[1])
for id in string.gmatch(redis.call('GET', KEYS[2]) or '', '%d+') do
  ids[#ids + 1] = id
end
return ids
