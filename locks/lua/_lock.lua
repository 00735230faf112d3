-- Helpers that the scripts of this folder share, prepended to each of them. Times are milliseconds.
--
-- A lock is a string with a TTL, '<owner> <token> <since>': its owner, its fencing token (empty if none
-- was asked for) and the Redis time at which it was taken. A reader is a member of the zset
-- '<lock>:readers' instead, scored with the Redis time at which its lease ends.

local LIMIT = 9007199254740991 -- 2^53 - 1: a double does not hold the next integer

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function digits(number)
  return string.format('%.0f', number)
end

-- Returns the value of a string; for a key of another type false, not an error.
local function value_of(key)
  return redis.call('MGET', key)[1]
end

local function is_of(value, owner)
  return value and string.sub(value, 1, #owner + 1) == owner .. ' '
end

local function token_of(value)
  return string.match(value, '^%S+ (%d*)') or ''
end

-- Returns the number in a fencing counter; any other value counts as 0.
local function counted(value)
  local counter = tonumber(string.match(value or '', '^%d+$') or '0')
  return counter < LIMIT and counter or 0
end

-- Takes the lock for an owner. Returns its token, or false if it is another owner's; and second whether
-- the owner has released it before. An owner that has it already gets its first token again and a whole
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

-- Extends the TTL of a key to at least this, never shortens it.
local function extend_ttl(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end

-- Notes how many threads of a process wait for a lock: for the list of locks, and so that a release
-- wakes one of them. A note that is not renewed ends after 'ttl'. A negative number changes nothing.
local function note_waiting(waiting, process, count, ttl)
  count = tonumber(count)
  if count > 0 then
    redis.call('HSET', waiting, process, digits(count) .. ' ' .. digits(now_ms() + ttl))
    extend_ttl(waiting, ttl)
  elseif count == 0 then
    redis.call('HDEL', waiting, process)
  end
end

-- Publishes a message and returns the number of receivers: 0 if publishing is forbidden.
local function publish(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message)
  return type(heard) == 'number' and heard or 0
end

-- Wakes one of the waiting processes, drawn at random. Returns true if the releasing process must wake a
-- thread of its own: it was drawn, or no other process is known to wait.
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
    redis.call('HDEL', waiting, other) -- it has died, or polls
  end
end
