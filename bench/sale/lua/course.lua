-- course: the steps of the course project's script, which checks nothing else.
--
-- KEYS[1]  stock   string  units left
-- KEYS[2]  buyers  set     user ids that have one
-- KEYS[3]  orders  stream  accepted orders
-- ARGV[1]  order id  ARGV[2] user id  ARGV[3] sale id
--
-- Returns one word, as reserve.lua does; the course returns a number, which costs as much.

if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 'SOLD_OUT' end
if redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 1 then return 'ALREADY_ORDERED' end
redis.call('INCRBY', KEYS[1], -1)
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[3], '*', 'id', ARGV[1], 'user_id', ARGV[2], 'sale_id', ARGV[3])
return 'ACCEPTED'
