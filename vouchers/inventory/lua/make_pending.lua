-- make_pending: put a buyer that is neither ordered nor pending back into pending.
--
-- KEYS[1]  buyers   hash
-- KEYS[2]  pending  zset
-- ARGV[1]  <user>:<unit>
-- ARGV[2]  order id
--
-- Returns 1 if the entry was added, 0 if the buyer is gone or was pending already.
-- @include now_in_ms
-- @include integer

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZADD', KEYS[2], 'NX', integer(now_in_ms()), ARGV[2] .. ':' .. ARGV[1])
