-- add_tally: add what a process has counted of a sale, once; it is sent again until it is answered.
--
-- KEYS[1]  hash    <second>:<answer> -> so many requests, of one sale
-- KEYS[2]  string  the number of the last batch that this process has added there
-- ARGV[1]  the number of this batch, which rises by one with each of the process
-- ARGV[2]  seconds for which the counts are kept  ARGV[3] seconds for which the number is
-- ARGV[4]  <second>:<answer>  ARGV[5] so many more  and so on
--
-- Returns 1 where they were added now, 0 where they had been before.

if redis.call('GET', KEYS[2]) == ARGV[1] then return 0 end
-- A key of a wrong type is as good as none.
if not is_a(KEYS[1], 'hash') then redis.call('DEL', KEYS[1]) end
for i = 4, #ARGV, 2 do
  redis.call('HINCRBY', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'EX', ARGV[3])
return 1
