-- Lets go of locks, each only if it is still this owner's. Times are milliseconds.
--
-- Replay: the first answer is kept for a while under a key of this owner, the released marker, since
-- after the deletion nothing else tells a repeated release from one that comes too late. The marker
-- also stops a late copy of the owner's acquire.
--
-- KEYS[1]   the owner's released marker
-- KEYS[2…]  the locks
-- ARGV[1]   owner
-- ARGV[2]   how long the marker is kept
--
-- Returns 1 RELEASED where every lock was the owner's, 2 NOT_OWNED where at least one was not (those
-- that were are gone all the same).

local RELEASED, NOT_OWNED = 1, 2

local marker, owner, keep = KEYS[1], ARGV[1], ARGV[2]

local first = redis.call('GET', marker)
if first then
  return tonumber(first)
end

local prefix, answer, ours = owner .. ' ', RELEASED, {}
for i = 2, #KEYS do
  -- MGET answers nothing, not an error, for a key of another type.
  local value = redis.call('MGET', KEYS[i])[1]
  if value and string.sub(value, 1, #prefix) == prefix then
    ours[#ours + 1] = KEYS[i]
  else
    answer = NOT_OWNED
  end
end

-- Deletions first: they are what must work when Redis has no memory left for a marker.
for _, name in ipairs(ours) do
  redis.call('DEL', name)
end
redis.call('SET', marker, answer, 'PX', keep)
return answer
