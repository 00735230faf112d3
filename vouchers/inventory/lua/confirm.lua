-- confirm: take entries out of pending whose orders are committed. Safe to repeat.
--
-- The worker may be writing the next batch by now, whose record must stay: a record is that of the
-- batch that was numbered last.
--
-- KEYS[1]  buyers    hash  with the sale's state, which has the number of the last batch
-- KEYS[2]  pending   zset
-- KEYS[3]  tries     hash  order id -> attempts
-- KEYS[4]  trying    string  the batch being written
-- KEYS[5]  copies    hash  order id -> what its row says  KEYS[6] the other one
-- KEYS[7]  changing  zset  orders whose rows are changing
-- KEYS[8]  failures  how often the database took no order; it takes some now
-- ARGV[1]  how long each hash of copies takes new ones, in ms
-- ARGV[2]  number of the batch that has ended, or 0 for the last one
-- ARGV[3…] the pending entries (<order id>:<user>:<unit>); then the order id of each; then what the
--          row of each says, or '' for no copy
--
-- Returns how many entries were still pending.
-- @include chunk_size
-- @include cache_rows
-- @include read_sale

local sale = read_sale()
local count = (#ARGV - 2) / 3
local confirmed = 0
for from = 3, count + 2, CHUNK_SIZE do
  local last = math.min(from + CHUNK_SIZE, count + 3) - 1
  confirmed = confirmed + redis.call('ZREM', KEYS[2], unpack(ARGV, from, last))
  redis.call('HDEL', KEYS[3], unpack(ARGV, from + count, last + count))
end
if not sale or ARGV[2] == '0' or ARGV[2] == sale.batch then redis.call('DEL', KEYS[4]) end
redis.call('DEL', KEYS[8])
cache_rows({KEYS[5], KEYS[6]}, KEYS[7], ARGV[1], 3 + count, 3 + 2 * count, count)
return confirmed
