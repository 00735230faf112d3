-- Takes one lock if it is free, and with it the next fencing token. Times are milliseconds.
--
-- A lock is a string with a TTL, "<owner> <token>"; the token is empty where none was asked for.
-- Replay: the owner that has the lock already gets its first token again, and a whole lease from now.
-- An owner that has released gets nothing: a late copy of its acquire would take a lock that nobody
-- is left to let go.
--
-- KEYS[1]  the owner's released marker (only read)
-- KEYS[2]  the lock
-- KEYS[3]  the fencing counter; left out = no token wanted
-- ARGV[1]  owner
-- ARGV[2]  lease
-- ARGV[3]  fence floor: a counter that is missing, unreadable or lower continues above it
--
-- Returns {1 GRANTED, token in digits or ''}, {2 BUSY, ''} or {3 ENDED, ''}.

local GRANTED, BUSY, ENDED = 1, 2, 3
local LIMIT = 9007199254740991 -- 2^53 - 1: the next integer is not a double any more

local marker, name, fence = KEYS[1], KEYS[2], KEYS[3]
local owner, lease, floor = ARGV[1], ARGV[2], tonumber(ARGV[3])

if redis.call('EXISTS', marker) == 1 then
  return {ENDED, ''}
end

-- MGET answers nothing, not an error, for a key of another type: that one is merely not ours.
local value = redis.call('MGET', name)[1]
if value and string.sub(value, 1, #owner + 1) == owner .. ' ' then
  redis.call('PEXPIRE', name, lease)
  return {GRANTED, string.sub(value, #owner + 2)}
end
if redis.call('EXISTS', name) == 1 then
  return {BUSY, ''}
end

local token = ''
if fence then
  local counter = tonumber(string.match(redis.call('MGET', fence)[1] or '', '^%d+$') or '0')
  if counter >= LIMIT then -- not ours: nothing of ours counts so far
    counter = 0
  end
  token = string.format('%.0f', math.max(counter, floor) + 1)
end

redis.call('SET', name, owner .. ' ' .. token, 'PX', lease)
if fence then
  redis.call('SET', fence, token, 'KEEPTTL')
end
return {GRANTED, token}
