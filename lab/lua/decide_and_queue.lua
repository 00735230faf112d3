-- decide_and_queue: like decide, and put the order into the stream in the same step.
--
-- KEYS[1]  stock   string  units left
-- KEYS[2]  buyers  set     user ids that got a unit
-- KEYS[3]  stream  stream  the orders to be written: sale_id, user_id
-- ARGV[1]  user id
-- ARGV[2]  sale id
--
-- Returns TAKEN, SOLD_OUT or ALREADY_ORDERED. If the keys are lost, everything is sold out.

if tonumber(redis.call('GET', KEYS[1]) or 0) < 1 then return 'SOLD_OUT' end -- breaks: denied, early
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'ALREADY_ORDERED' end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
redis.call('XADD', KEYS[3], '*', 'sale_id', ARGV[2], 'user_id', ARGV[1])
return 'TAKEN'
