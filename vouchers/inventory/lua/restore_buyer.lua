-- restore_buyer: enter a pending entry among the buyers again, where it stands there no more.
--
-- KEYS[1]  buyers   hash
-- KEYS[2]  pending  zset
-- ARGV[1]  <user>:<unit>
-- ARGV[2]  order id
--
-- Returns 1 where it was entered, 0 where it is no longer pending or another order stands there.

if not redis.call('ZSCORE', KEYS[2], ARGV[2] .. ':' .. ARGV[1]) then return 0 end
return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
