-- claim_sweep: decide whether a fulfil task is due for a sale, and if so record that it is sent.
--
-- It is due when the oldest pending entry has waited too long, no task is queued, and the pause
-- since the last sweep is over. The pause doubles while the oldest entry stays the same, up to a
-- maximum, so that a stuck sale costs little. Any progress resets it. After failures of the
-- database, the backoff of the workers takes its place. An age of 0 waits for no pause. After the
-- clock of Redis went back, an entry may be from the future: it is due.
--
-- KEYS[1]  pending  zset
-- KEYS[2]  kick     string  1: a fulfil task is queued; 0: it has started
-- KEYS[3]  swept    hash    oldest: the entry last swept for; pause and due time in ms
-- KEYS[4]  backoff  exists while workers do not try the sale  KEYS[5] failures  a while longer
-- KEYS[6]  sale     hash    (newer_format)
-- ARGV[1]  age in ms at which an entry has waited too long
-- ARGV[2]  the longest pause in ms
-- ARGV[3]  milliseconds that a kick lasts
-- ARGV[4]  milliseconds that failures last at most  ARGV[7] and backoff
-- ARGV[5]  the least score of an entry that is set aside
-- ARGV[6]  the first pause in ms
--
-- Returns {1 if the caller must send the task, else 0; the keys of a wrong type that were deleted…}.
-- @include has_type
-- @include now_in_ms
-- @include integer
-- @include repair_key
-- @include newer_format

local now_ms, age_ms, longest_ms = now_in_ms(), tonumber(ARGV[1]), tonumber(ARGV[2])
local reply = {0}
if newer_format(KEYS[6]) then return reply end
repair_key(reply, KEYS[2], 'string', tonumber(ARGV[3]))
repair_key(reply, KEYS[3], 'hash', 2 * longest_ms)
repair_key(reply, KEYS[4], 'string', tonumber(ARGV[7]))
repair_key(reply, KEYS[5], 'string', tonumber(ARGV[4]))

if not has_type(KEYS[1], 'zset') then return reply end
local oldest = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. ARGV[5], 'WITHSCORES',
  'LIMIT', 0, 1)
if not oldest[1] or redis.call('EXISTS', KEYS[4]) == 1 then return reply end
local oldest_ms = tonumber(oldest[2])
if oldest_ms <= now_ms and oldest_ms > now_ms - age_ms then return reply end

local swept = redis.call('HMGET', KEYS[3], 'oldest', 'pause', 'due')
local pause_ms = tonumber(ARGV[6])
if swept[1] == oldest[1] then
  local left_ms = (tonumber(swept[3]) or 0) - now_ms
  local waits = age_ms > 0 and left_ms > 0 and left_ms <= longest_ms
  if waits and redis.call('EXISTS', KEYS[5]) == 0 then return reply end
  pause_ms = math.min(2 * (tonumber(swept[2]) or pause_ms), longest_ms)
end
if not redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[3]) then return reply end
redis.call('HSET', KEYS[3], 'oldest', oldest[1], 'pause', integer(pause_ms),
  'due', integer(now_ms + pause_ms))
redis.call('PEXPIRE', KEYS[3], integer(2 * longest_ms))
reply[1] = 1
return reply
