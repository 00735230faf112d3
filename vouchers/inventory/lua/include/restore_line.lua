-- @include drop_wrong_type
-- @include digits_or_nil
-- @include integer
-- Let the line of a waiting room go on after the last number that is stored, if Redis lost it or came
-- back with an older one. Stored numbers are never too high: the last visits may have no row yet.
local function restore_line(opened, tail, early, ends_at_ms)
  drop_wrong_type(KEYS[10], 'hash')
  if tail == '0' then return end
  if redis.call('HGET', KEYS[10], 'opened') ~= opened then
    redis.call('UNLINK', KEYS[10])
    redis.call('HSET', KEYS[10], 'opened', opened)
    redis.call('PEXPIREAT', KEYS[10], integer(ends_at_ms + 3600000))
  end
  local kept = redis.call('HMGET', KEYS[10], 'tail', 'early')
  local known_tail, drawn = digits_or_nil(kept[1]) or '0', digits_or_nil(kept[2])
  local is_older = tonumber(known_tail) < tonumber(tail)
  if is_older then redis.call('HSET', KEYS[10], 'tail', tail) end
  -- A line that is not older and not drawn is drawn by its next visit, which knows the last number.
  if early ~= '' and (drawn or is_older) and tonumber(drawn or '0') < tonumber(early) then
    redis.call('HSET', KEYS[10], 'early', early)
  end
end
