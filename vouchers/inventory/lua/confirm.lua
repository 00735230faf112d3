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
-- KEYS[9]  pace      string  <since when, in ms> <how many entries were confirmed since>
-- ARGV[1]  how long each hash of copies takes new ones, in ms
-- ARGV[2]  number of the batch that has ended, or 0 for the last one
-- ARGV[3…] the pending entries (<order id>:<user>:<unit>); then the order id of each; then what the
--          row of each says, or '' for no copy
--
-- Returns how many entries were still pending.
-- @include chunk_size
-- @include cache_rows
-- @include read_sale
-- @include now_in_ms
-- @include integer

-- The pace is that of the last seconds: it forgets the older half of a span that got too long, and
-- ends with the progress. The first entries of a span only start it, as nobody knows what they took.
local LONGEST_SPAN_MS, KEPT_MS = 4000, 5000

local function note_pace(key, confirmed, now_ms)
  local since, count = string.match(redis.call('MGET', key)[1] or '', '^(%d+) (%d+)$')
  local span = now_ms - (since or now_ms)
  count = since and span >= 0 and count + confirmed or 0
  if span > LONGEST_SPAN_MS then span, count = span / 2, count / 2 end
  local started = integer(now_ms - math.max(span, 0))
  redis.call('SET', key, started .. ' ' .. integer(count), 'PX', KEPT_MS)
end

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
if confirmed > 0 then note_pace(KEYS[9], confirmed, now_in_ms()) end
cache_rows({KEYS[5], KEYS[6]}, KEYS[7], ARGV[1], 3 + count, 3 + 2 * count, count)
return confirmed
