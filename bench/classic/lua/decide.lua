-- decide: take one unit for this buyer, or return why not.
--
-- KEYS[1]  stock   string  units left
-- KEYS[2]  buyers  set     user ids that have one
-- ARGV[1]  user id
--
-- Returns TAKEN, SOLD_OUT or ALREADY_ORDERED.

if tonumber(redis.call('GET', KEYS[1]) or 0) <= 0 then return 'SOLD_OUT' end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'ALREADY_ORDERED' end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 'TAKEN'
