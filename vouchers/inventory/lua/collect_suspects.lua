-- collect_suspects: return the entries to write apart, with those that a dead worker was writing.
--
-- The caller holds the sale's lock. Entries of a batch that did not end are to be written with a few
-- others; if that does not end either, alone. A worker that died while it wrote one entry alone
-- counts as a failure of that entry.
--
-- KEYS[1]  tries   hash    order id -> <failures> <time of the last in ms>, or 'refuse'
--                          0 0: one batch with it did not end; 0 1: two did not
-- KEYS[2]  trying  string  <time in ms>;<order ids> that a worker was writing when it died
-- ARGV     the order ids of another batch that did not end
--
-- Returns groups of four: order id, failures and milliseconds since the last as digits, and how to
-- write it: together (with a few others), alone, or refuse (staff have decided so). A failure
-- from the future, before the clock of Redis went back, is long ago.
-- @include now_in_ms
-- @include integer
-- @include count_failure
-- @include digits_or_nil

local now_ms, suspects, deaths = now_in_ms(), ARGV, 0
local at_ms, ids = string.match(redis.call('MGET', KEYS[2])[1] or '', '^(%d+);(.*)$')
for id in string.gmatch(ids or '', '%d+') do
  suspects[#suspects + 1] = id
  deaths = deaths + 1
end
for _, id in ipairs(suspects) do
  if redis.call('HSETNX', KEYS[1], id, '0 0') == 0 and redis.call('HGET', KEYS[1], id) == '0 0' then
    redis.call('HSET', KEYS[1], id, '0 1')
  end
end
if deaths == 1 and redis.call('HGET', KEYS[1], suspects[#suspects]) ~= 'refuse' then
  count_failure(KEYS[1], suspects[#suspects], tonumber(at_ms))
end
if deaths > 0 then redis.call('DEL', KEYS[2]) end

local reply = {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local count, last_ms = string.match(fields[i + 1], '^(%d+) (%d+)$')
  if digits_or_nil(fields[i]) then
    reply[#reply + 1] = fields[i]
    reply[#reply + 1] = count or '0'
    last_ms = tonumber(last_ms or 0)
    reply[#reply + 1] = integer(last_ms <= now_ms and now_ms - last_ms or now_ms)
    reply[#reply + 1] = fields[i + 1] == 'refuse' and 'refuse'
      or fields[i + 1] == '0 0' and 'together' or 'alone'
  end
end
return reply
