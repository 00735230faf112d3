-- leave_waiting: take a buyer off the waiting list. Safe to repeat.
--
-- KEYS[1]  waiting  zset
-- ARGV[1]  <order id>:<user>
--
-- Returns 1 if the buyer was waiting, else 0.

return redis.call('ZREM', KEYS[1], ARGV[1])
