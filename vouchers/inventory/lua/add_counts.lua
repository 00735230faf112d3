-- add_counts: add one batch of a process's counts to a sale, once. Safe to repeat.
--
-- KEYS[1]  hash    <second>:<answer> -> number of requests, of one sale
-- KEYS[2]  string  the number of the last batch that this process has added
-- ARGV[1]  the number of this batch; it rises by one with each batch of the process
-- ARGV[2]  seconds to keep the counts  ARGV[3] seconds to keep the batch number
-- ARGV[4]  <second>:<answer>  ARGV[5] requests to add; and so on in pairs
--
-- Returns 1 if the batch was added now, 0 if it was added before.
-- @include drop_wrong_type

if redis.call('MGET', KEYS[2])[1] == ARGV[1] then return 0 end
drop_wrong_type(KEYS[1], 'hash')
for i = 4, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[3])
return 1
