-- Take many locks for one owner: those that are free, or all or none. Times are milliseconds.
--
-- A lock has the value that acquire.lua gives it, without a token, so all kinds exclude each other.
-- Replay: a lock that the owner already has counts as taken and gets a full lease from now. An owner
-- that has released gets nothing (acquire.lua says why).
--
-- KEYS[1]   the owner's released marker (only read)
-- KEYS[2…]  the locks; then, if it waits, the waiting processes of each in the same order
-- ARGV[1]   owner
-- ARGV[2]   lease
-- ARGV[3]   'free' = take those that are free, 'all' = take all or none
-- ARGV[4]   number of locks
-- ARGV[5]   the requesting process
-- ARGV[6]   number of its threads that wait for the busy one; negative = note nothing
-- ARGV[7]   lifetime of that note
--
-- Returns {1 GRANTED, name, …} with every lock the owner has now, {2 BUSY, index of the busy one
-- from 1, time left of its holder's lease} (only for 'all') or {3 ENDED}.
-- @include digits
-- @include is_free
-- @include is_of
-- @include note_waiting
-- @include now_ms
-- @include value_of

local GRANTED, BUSY, ENDED = 1, 2, 3

local marker, owner, lease, mode, locks = KEYS[1], ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local process, if_busy, ttl = ARGV[5], ARGV[6], ARGV[7]

if redis.call('EXISTS', marker) == 1 then
  return {ENDED}
end

local value = owner .. '  ' .. digits(now_ms())

if mode == 'all' then
  for i = 2, locks + 1 do
    if not is_of(value_of(KEYS[i]), owner) and not is_free(KEYS[i]) then
      if #KEYS > locks + 1 then
        note_waiting(KEYS[locks + i], process, if_busy, ttl)
      end
      return {BUSY, i - 1, redis.call('PTTL', KEYS[i])}
    end
  end
end

local answer = {GRANTED}
for i = 2, locks + 1 do
  local taken = redis.call('SET', KEYS[i], value, 'NX', 'PX', lease)
  if not taken and is_of(value_of(KEYS[i]), owner) then
    taken = redis.call('PEXPIRE', KEYS[i], lease)
  elseif not taken and is_free(KEYS[i]) then
    taken = redis.call('SET', KEYS[i], value, 'PX', lease)
  end
  if taken then
    answer[#answer + 1] = KEYS[i]
  end
end
return answer
