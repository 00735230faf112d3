-- read_pending: return pending entries, oldest first. Writes nothing.
--
-- A script, because its reply is flat in every protocol: the client spends several times as long on
-- the pairs that ZRANGEBYSCORE returns.
--
-- KEYS[1]  pending  zset
-- ARGV[1]  lowest score  ARGV[2] highest score  ARGV[3] how many to skip  ARGV[4] how many, -1: all
--
-- Returns each entry and its score.

return redis.call('ZRANGEBYSCORE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES', 'LIMIT', ARGV[3], ARGV[4])
