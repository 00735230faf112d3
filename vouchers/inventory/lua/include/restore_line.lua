-- @include drop_wrong_type
-- @include integer
-- Let the line of a waiting room go on after the last number that is stored, if Redis lost it.
local function restore_line(opened, tail, early, ends_at_ms)
  drop_wrong_type(KEYS[10], 'hash')
  if tail == '0' or redis.call('HGET', KEYS[10], 'opened') == opened then return end
  redis.call('UNLINK', KEYS[10])
  redis.call('HSET', KEYS[10], 'opened', opened, 'tail', tail)
  redis.call('PEXPIREAT', KEYS[10], integer(ends_at_ms + 3600000))
  if early ~= '' then redis.call('HSET', KEYS[10], 'early', early) end
end
