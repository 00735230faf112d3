-- collect_suspects: return the entries to write alone, with those that a dead worker was writing.
--
-- The caller holds the sale's lock. A worker that died while it wrote one entry alone counts as a
-- failure of that entry.
--
-- KEYS[1]  tries   hash    order id -> <failures> <time of the last in ms>, or 'refuse'
-- KEYS[2]  trying  string  <time in ms>;<order ids> that a worker was writing when it died
--
-- Returns groups of four, as digits: order id, failures, milliseconds since the last, and 1 if staff
-- have decided to refuse it.
-- @include now_in_ms
-- @include integer
-- @include count_failure
-- @include digits_or_nil

local now_ms, died = now_in_ms(), {}
local at_ms, ids = string.match(redis.call('MGET', KEYS[2])[1] or '', '^(%d+);(.*)$')
for id in string.gmatch(ids or '', '%d+') do
  redis.call('HSETNX', KEYS[1], id, '0 0')
  died[#died + 1] = id
end
if #died == 1 and redis.call('HGET', KEYS[1], died[1]) ~= 'refuse' then
  count_failure(KEYS[1], died[1], tonumber(at_ms))
end
if #died > 0 then redis.call('DEL', KEYS[2]) end

local found = {}
local fields = redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  local count, last_ms = string.match(fields[i + 1], '^(%d+) (%d+)$')
  if digits_or_nil(fields[i]) then
    found[#found + 1] = fields[i]
    found[#found + 1] = count or '0'
    found[#found + 1] = integer(now_ms - tonumber(last_ms or 0))
    found[#found + 1] = fields[i + 1] == 'refuse' and '1' or '0'
  end
end
return found
