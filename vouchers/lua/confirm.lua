-- confirm: the orders of these entries are committed rows; their promise is kept.
--
-- KEYS[1]  pending  zset
-- KEYS[2]  tries    hash  order id -> attempts
-- KEYS[3]  trying   string  what was tried; it is over now
-- ARGV     any number of pairs: pending entry (<order id>:<user>:<unit>), order id
--
-- Returns how many entries were still pending. Replaying it changes nothing.

local confirmed = 0
for i = 1, #ARGV, 2 do
  confirmed = confirmed + redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('HDEL', KEYS[2], ARGV[i + 1])
end
redis.call('DEL', KEYS[3])
return confirmed
