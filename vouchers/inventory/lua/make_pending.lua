-- make_pending: put a buyer that is neither ordered nor pending back among the pending.
--
-- KEYS[1]  buyers   hash
-- KEYS[2]  pending  zset
-- ARGV[1]  <user>:<unit>
-- ARGV[2]  order id
--
-- Returns 1 where it was put there, 0 where the reservation is gone or was pending all along.

if redis.call('HGET', KEYS[1], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZADD', KEYS[2], 'NX', integer(now_in_ms()), ARGV[2] .. ':' .. ARGV[1])
