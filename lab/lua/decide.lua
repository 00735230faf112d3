-- decide: give this buyer one unit, or return why not, in one atomic step.
--
-- KEYS[1]  stock   string  units left
-- KEYS[2]  buyers  set     user ids that got a unit
-- KEYS[3]  window  hash    start and end of the sale; not read
-- ARGV[1]  user id
--
-- Returns TAKEN, SOLD_OUT or ALREADY_ORDERED. If the keys are lost, everything is sold out.

if tonumber(redis.call('GET', KEYS[1]) or 0) < 1 then return 'SOLD_OUT' end -- breaks: denied, early
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'ALREADY_ORDERED' end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 'TAKEN'
