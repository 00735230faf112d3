-- Release each lock that is still this owner's, and wake all waiters. Times are milliseconds.
--
-- Replay: as in release.lua.
--
-- KEYS[1]   the owner's released marker
-- KEYS[2…]  the locks
-- ARGV[1]   owner
-- ARGV[2]   lifetime of the marker
-- ARGV[3]   the channel
-- ARGV[4]   the releasing process
--
-- Returns 1 RELEASED if every lock was the owner's, else 2 NOT_OWNED; the owner's are released in
-- either case.
-- @include is_of
-- @include publish

local RELEASED, NOT_OWNED = 1, 2

local marker, owner, keep, channel, process = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local first = redis.call('GET', marker)
if first then
  return tonumber(first)
end

local answer, ours = RELEASED, {}
for from = 2, #KEYS, 1000 do -- well within the number of arguments that Lua takes
  local values = redis.call('MGET', unpack(KEYS, from, math.min(from + 999, #KEYS)))
  for i, value in ipairs(values) do
    if is_of(value, owner) then
      ours[#ours + 1] = KEYS[from + i - 1]
    else
      answer = NOT_OWNED
    end
  end
end

-- Deletions first: they must work even when Redis has no memory left for a marker.
for from = 1, #ours, 1000 do
  redis.call('DEL', unpack(ours, from, math.min(from + 999, #ours)))
end
-- One message for all: looking up the waiters of each would cost more.
if #ours > 0 then
  publish(channel, process .. '\n' .. table.concat(ours, '\n'))
end
redis.call('SET', marker, answer, 'PX', keep)
return answer
