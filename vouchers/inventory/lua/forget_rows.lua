-- forget_rows: the rows of these orders are about to change.
--
-- KEYS[1]  copies    hash  order id -> what its row says  KEYS[2] the other one
-- KEYS[3]  changing  zset  order id by the time at which its change was said
-- ARGV[1]  for how long no copy of them is kept, in ms
-- ARGV[2…] order ids
--
-- Replaying it only lets that time begin again.

local now_ms = now_in_ms()
-- Deletions first: they are what must work when Redis has no memory left for a mark.
for from = 2, #ARGV, AT_ONCE do
  local last = math.min(from + AT_ONCE - 1, #ARGV)
  for i = 1, 2 do
    if is_a(KEYS[i], 'hash') then redis.call('HDEL', KEYS[i], unpack(ARGV, from, last)) end
  end
end
if not is_a(KEYS[3], 'zset') then redis.call('UNLINK', KEYS[3]) end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', integer(now_ms - ARGV[1]))
for from = 2, #ARGV, AT_ONCE do
  local marks = {}
  for i = from, math.min(from + AT_ONCE - 1, #ARGV) do
    marks[#marks + 1] = integer(now_ms)
    marks[#marks + 1] = ARGV[i]
  end
  redis.call('ZADD', KEYS[3], unpack(marks))
end
redis.call('PEXPIRE', KEYS[3], ARGV[1])
