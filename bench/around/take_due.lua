-- take_due: take the orders that are due, so that nobody else takes them.
--
-- KEYS[1]  zset  orders by the time at which they are due, in ms
-- ARGV[1]  now in ms
-- ARGV[2]  the most orders to take
-- ARGV[3]  lease in ms, after which an order that is still there is due again; 0: remove it at once
--
-- Returns the orders, the longest due first.

local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
for _, order in ipairs(due) do
  if ARGV[3] == '0' then
    redis.call('ZREM', KEYS[1], order)
  else
    redis.call('ZADD', KEYS[1], ARGV[1] + ARGV[3], order)
  end
end
return due
