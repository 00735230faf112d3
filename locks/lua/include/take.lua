-- A lock is a string with a TTL, '<owner> <token> <since>': its owner, its fencing token (empty if none
-- was asked for) and the Redis time at which it was taken. A reader is a member of the zset
-- '<lock>:readers' instead, scored with the Redis time at which its lease ends.
-- @include counted
-- @include digits
-- @include is_free
-- @include is_of
-- @include now_ms

local function token_of(value)
  return string.match(value, '^%S+ (%d*)') or ''
end

-- Take the lock for an owner. Return its token, or false if another owner has it; the second value says
-- whether the owner has released it before. An owner that already has it gets the same token and a full
-- lease from now. The token is the counter's next value, above the floor, or empty without a counter.
local function take(marker, name, owner, lease, fence, floor)
  local read = redis.call('MGET', name, fence or name, marker)
  if read[3] then
    return false, true
  end
  if is_of(read[1], owner) then
    redis.call('PEXPIRE', name, lease)
    return token_of(read[1])
  end
  if not is_free(name) then
    return false
  end
  local token = fence and digits(math.max(counted(read[2]), tonumber(floor)) + 1) or ''
  local value = owner .. ' ' .. token .. ' ' .. digits(now_ms())
  redis.call('SET', name, value, 'PX', lease)
  if fence then
    redis.call('SET', fence, token, 'KEEPTTL')
  end
  return token
end
