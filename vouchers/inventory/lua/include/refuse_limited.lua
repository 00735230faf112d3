-- @include drop_wrong_type
-- @include integer
-- Note in zset `key` that a subject at its limit was refused; return the answer LIMITED.
local function refuse_limited(key, subject, now_ms)
  local wait_ms = integer(1000000 - now_ms % 1000000)
  drop_wrong_type(key, 'zset')
  redis.call('ZINCRBY', key, 1, subject)
  redis.call('PEXPIRE', key, wait_ms)
  return 'LIMITED' .. ' ' .. subject .. ' ' .. wait_ms
end
