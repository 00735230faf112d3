-- confirm: take entries out of pending whose orders are committed. Safe to repeat.
--
-- KEYS[1]  pending   zset
-- KEYS[2]  tries     hash  order id -> attempts
-- KEYS[3]  trying    string  the batch being written; it has ended
-- KEYS[4]  copies    hash  order id -> what its row says  KEYS[5] the other one
-- KEYS[6]  changing  zset  orders whose rows are changing
-- KEYS[7]  failures  how often the database took no order; it takes some now
-- ARGV[1]  how long each hash of copies takes new ones, in ms
-- ARGV[2…] the pending entries (<order id>:<user>:<unit>); then the order id of each; then what the
--          row of each says, or '' for no copy
--
-- Returns how many entries were still pending.
-- @include chunk_size
-- @include cache_rows

local count = (#ARGV - 1) / 3
local confirmed = 0
for from = 2, count + 1, CHUNK_SIZE do
  local last = math.min(from + CHUNK_SIZE, count + 2) - 1
  confirmed = confirmed + redis.call('ZREM', KEYS[1], unpack(ARGV, from, last))
  redis.call('HDEL', KEYS[2], unpack(ARGV, from + count, last + count))
end
redis.call('DEL', KEYS[3], KEYS[7])
cache_rows({KEYS[4], KEYS[5]}, KEYS[6], ARGV[1], 2 + count, 2 + 2 * count, count)
return confirmed
