-- invalidate_rows: drop the copies of rows that are about to change, and cache none for a while.
--
-- Safe to repeat: that time only starts over.
--
-- KEYS[1]  copies    hash  order id -> what its row says  KEYS[2] the other one
-- KEYS[3]  changing  zset  order id by the time of its invalidation
-- ARGV[1]  how long no copy of them is cached, in ms
-- ARGV[2…] order ids
--
-- Returns nothing.
-- @include now_in_ms
-- @include integer
-- @include drop_wrong_type
-- @include chunk_size

local now_ms = now_in_ms()
-- Deletions first: they must work even when Redis has no memory left for a mark.
for from = 2, #ARGV, CHUNK_SIZE do
  local last = math.min(from + CHUNK_SIZE - 1, #ARGV)
  for i = 1, 2 do
    drop_wrong_type(KEYS[i], 'hash')
    redis.call('HDEL', KEYS[i], unpack(ARGV, from, last))
  end
end
drop_wrong_type(KEYS[3], 'zset')
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', integer(now_ms - ARGV[1]))
for from = 2, #ARGV, CHUNK_SIZE do
  local marks = {}
  for i = from, math.min(from + CHUNK_SIZE - 1, #ARGV) do
    marks[#marks + 1] = integer(now_ms)
    marks[#marks + 1] = ARGV[i]
  end
  redis.call('ZADD', KEYS[3], unpack(marks))
end
redis.call('PEXPIRE', KEYS[3], ARGV[1])
