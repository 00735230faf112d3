-- @include drop_wrong_type
-- @include integer
-- Keep the sale's own limit of new orders per address beside its counts (reserve.lua); '' for none.
local function keep_per_address(limits, per_address, ends_at_ms)
  drop_wrong_type(limits, 'hash')
  if per_address == '' then
    redis.call('HDEL', limits, 'per_address')
  else
    redis.call('HSET', limits, 'per_address', per_address)
    redis.call('PEXPIREAT', limits, integer(ends_at_ms + 3600000))
  end
end
