-- confirm: the orders of these entries are committed rows; their promise is kept.
--
-- KEYS[1]  pending   zset
-- KEYS[2]  tries     hash  order id -> attempts
-- KEYS[3]  trying    string  what was tried; it is over now
-- KEYS[4]  copies    hash  KEYS[5] the other one
-- KEYS[6]  changing  zset
-- ARGV[1]  how long a turn of the copies is, in ms
-- ARGV[2…] the pending entries (<order id>:<user>:<unit>); then the order id of each; then what the row
--          of each says, or '' where no copy is to be kept
--
-- Returns how many entries were still pending. Replaying it changes nothing.

local count = (#ARGV - 1) / 3
local confirmed = 0
for from = 2, count + 1, AT_ONCE do
  local last = math.min(from + AT_ONCE, count + 2) - 1
  confirmed = confirmed + redis.call('ZREM', KEYS[1], unpack(ARGV, from, last))
  redis.call('HDEL', KEYS[2], unpack(ARGV, from + count, last + count))
end
redis.call('DEL', KEYS[3])
keep_copies({KEYS[4], KEYS[5]}, KEYS[6], ARGV[1], 2 + count, 2 + 2 * count, count)
return confirmed
