-- Takes many locks for one owner: those that are free, or all of them or none. Times are milliseconds.
--
-- The locks look as in acquire.lua, without a token, so that both kinds exclude each other.
-- Replay: what the owner has already counts as taken, and gets a whole lease from now. An owner that
-- has released gets nothing (acquire.lua says why).
--
-- KEYS[1]   the owner's released marker (only read)
-- KEYS[2…]  the locks
-- ARGV[1]   owner
-- ARGV[2]   lease
-- ARGV[3]   'free' = take those that are free, 'all' = take all or none
--
-- Returns {1 GRANTED, name, …} with every lock the owner has now, {2 BUSY} (only for 'all') or
-- {3 ENDED}.

local GRANTED, BUSY, ENDED = 1, 2, 3

local marker, owner, lease, mode = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local value = owner .. ' '

if redis.call('EXISTS', marker) == 1 then
  return {ENDED}
end

local answer = {GRANTED}
for i = 2, #KEYS do
  -- MGET answers nothing, not an error, for a key of another type.
  local ours = redis.call('MGET', KEYS[i])[1] == value
  if ours or redis.call('EXISTS', KEYS[i]) == 0 then
    answer[#answer + 1] = KEYS[i]
  elseif mode == 'all' then
    return {BUSY}
  end
end

for i = 2, #answer do
  redis.call('SET', answer[i], value, 'PX', lease)
end
return answer
