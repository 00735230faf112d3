-- What the scripts of this folder share; it stands in front of each of them. Times are milliseconds.
--
-- A lock is a string with a TTL, '<owner> <token> <since>': who has it, the fencing token (empty where
-- none was asked for) and the Redis time at which it was taken. A holder that reads is a member of the
-- zset '<lock>:readers' instead, scored with the Redis time at which its lease ends.

local LIMIT = 9007199254740991 -- 2^53 - 1: the next integer is not a double any more

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function digits(number)
  return string.format('%.0f', number)
end

-- The value of a string; of a key of another type too the answer is false, not an error.
local function value_of(key)
  return redis.call('MGET', key)[1]
end

local function is_of(value, owner)
  return value and string.sub(value, 1, #owner + 1) == owner .. ' '
end

local function token_of(value)
  return string.match(value, '^%S+ (%d*)') or ''
end

-- The number that a fencing counter stands at; what is not ours counts for nothing.
local function counted(value)
  local counter = tonumber(string.match(value or '', '^%d+$') or '0')
  return counter < LIMIT and counter or 0
end

-- Takes the lock for an owner and returns its token, or false where it is another's, and second whether
-- the owner has released it before. An owner that has it already gets its first token again, and a whole
-- lease from now. The token is the next of the counter, above the floor; without a counter it is empty.
local function take(marker, name, owner, lease, fence, floor)
  local read = redis.call('MGET', name, fence or name, marker)
  if read[3] then
    return false, true
  end
  if is_of(read[1], owner) then
    redis.call('PEXPIRE', name, lease)
    return token_of(read[1])
  end
  if read[1] then
    return false
  end
  local token = fence and digits(math.max(counted(read[2]), tonumber(floor)) + 1) or ''
  local value = owner .. ' ' .. token .. ' ' .. digits(now_ms())
  if not redis.call('SET', name, value, 'NX', 'PX', lease) then
    return false -- a key of another type
  end
  if fence then
    redis.call('SET', fence, token, 'KEEPTTL')
  end
  return token
end

-- Makes a key live at least this long from now.
local function extend_ttl(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end

-- Notes how many threads of a process wait for a lock: for those who look, and so that a release wakes
-- one of them. What nobody renews is forgotten after 'stay'. A negative number leaves the note as it is.
local function note_waiting(waiting, process, count, stay)
  count = tonumber(count)
  if count > 0 then
    redis.call('HSET', waiting, process, digits(count) .. ' ' .. digits(now_ms() + stay))
    extend_ttl(waiting, stay)
  elseif count == 0 then
    redis.call('HDEL', waiting, process)
  end
end

-- Says how many heard it; where nothing may be published, nobody does, and nothing else is hindered.
local function publish(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message)
  return type(heard) == 'number' and heard or 0
end

-- Wakes one of the processes that wait. Says whether it is left to the process that lets go to wake a
-- thread of its own: it was drawn, or nobody else is known to wait.
local function wake_one(channel, process, waiting, name)
  while true do
    local drawn = redis.call('HRANDFIELD', waiting, 1, 'WITHVALUES')
    local other, note = drawn[1], drawn[2]
    if not other then
      return true
    end
    local counts = tonumber(string.match(note, '%d+$') or '0') > now_ms()
    if counts and other == process then
      return true
    end
    if counts and publish(channel .. ':' .. other, name) > 0 then
      return false
    end
    redis.call('HDEL', waiting, other) -- it has died, or asks by itself
  end
end
