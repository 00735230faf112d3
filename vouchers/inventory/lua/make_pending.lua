-- make_pending: put a purchase whose buyer is neither ordered nor pending back into pending.
--
-- KEYS[1]  buyers   hash
-- KEYS[2]  pending  zset
-- ARGV     pairs, one for each unit of the purchase: <user>:<unit>, order id
--
-- Returns how many entries were added: not those whose buyer is gone or that were pending already.
-- @include now_in_ms
-- @include integer

local now, added = integer(now_in_ms()), 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    added = added + redis.call('ZADD', KEYS[2], 'NX', now, ARGV[i + 1] .. ':' .. ARGV[i])
  end
end
return added
