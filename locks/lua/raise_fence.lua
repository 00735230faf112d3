-- Raises a fencing counter to at least a value; never lowers it.
--
-- Replay: the same again.
--
-- KEYS[1]  the fencing counter; one that is missing or unreadable counts as 0
-- ARGV[1]  the least value it shall have, in digits, below 2^53 - 1
--
-- Returns the counter as it is now, in digits.

local LIMIT = 9007199254740991 -- 2^53 - 1: the next integer is not a double any more

local fence, at_least = KEYS[1], ARGV[1]

local counter = tonumber(string.match(redis.call('MGET', fence)[1] or '', '^%d+$') or '0')
if counter >= LIMIT then -- not ours: nothing of ours counts so far
  counter = 0
end
if counter >= tonumber(at_least) then
  return string.format('%.0f', counter)
end
redis.call('SET', fence, at_least, 'KEEPTTL')
return at_least
