-- Raise a fencing counter to at least a value; never lower it.
--
-- Replay: the same result.
--
-- KEYS[1]  the fencing counter; one that is missing or unreadable counts as 0
-- ARGV[1]  the minimum value, in digits, below 2^53 - 1
--
-- Returns the counter's value now, in digits.
-- @include counted
-- @include digits
-- @include value_of

local fence, at_least = KEYS[1], ARGV[1]

local counter = counted(value_of(fence))
if counter >= tonumber(at_least) then
  return digits(counter)
end
redis.call('SET', fence, at_least, 'KEEPTTL')
return at_least
