-- restore_buyer: add the buyer of a pending entry that `buyers` has lost.
--
-- KEYS[1]  buyers   hash
-- KEYS[2]  pending  zset
-- ARGV[1]  <user>:<unit>
-- ARGV[2]  order id
--
-- Returns 1 if the buyer was added, 0 if the entry is not pending any more or the unit is taken.

if not redis.call('ZSCORE', KEYS[2], ARGV[2] .. ':' .. ARGV[1]) then return 0 end
return redis.call('HSETNX', KEYS[1], ARGV[1], ARGV[2])
