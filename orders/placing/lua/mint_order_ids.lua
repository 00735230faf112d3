-- mint_order_ids: mint consecutive order ids by the clock of Redis.
--
-- An id is the seconds since our epoch (31 bits) above a sequence that restarts each day (32 bits).
-- The caller combines the two: a Lua number is a double and has 53 bits. The seconds never fall
-- behind those of an earlier call, so ids increase even when the server's clock is set back.
--
-- KEYS[1]  hash  seconds, day, sequence of the last call
-- ARGV[1]  our epoch in seconds since 1970
-- ARGV[2]  how many ids, at least 1
-- ARGV[3]  the sequence stays below this; where a day would need more, it goes on in the next second
-- ARGV[4]  how many ids a microsecond can have used at most
--
-- Returns {seconds, sequence of the first id}; the other ids follow in sequence.

local function integer(number)
  return string.format('%.0f', number)
end

if redis.call('TYPE', KEYS[1])['ok'] ~= 'hash' then redis.call('DEL', KEYS[1]) end
local last = redis.call('HMGET', KEYS[1], 'seconds', 'day', 'sequence')
local time = redis.call('TIME')
local seconds = math.max(time[1] - ARGV[1], tonumber(last[1] or 0))
local day = math.floor(seconds / 86400)
local sequence = 0
if not last[1] then
  -- The key was lost, perhaps within this second: start far above what this second can have used.
  sequence = time[2] * ARGV[4]
elseif tonumber(last[2]) == day then
  sequence = tonumber(last[3])
end
if sequence + ARGV[2] >= tonumber(ARGV[3]) then
  seconds, sequence = seconds + 1, 0 -- nobody has ids of that second yet
end
redis.call('HSET', KEYS[1], 'seconds', integer(seconds), 'day', integer(math.floor(seconds / 86400)),
  'sequence', integer(sequence + ARGV[2]))
return {seconds, sequence + 1}
