-- leave_waiting: take a buyer off the waiting list. Safe to repeat.
--
-- KEYS[1]  waiting  zset
-- ARGV     <order id>:<user>, for each order id under which the buyer may be waiting
--
-- Returns 1 if the buyer was waiting, else 0.

return redis.call('ZREM', KEYS[1], unpack(ARGV))
