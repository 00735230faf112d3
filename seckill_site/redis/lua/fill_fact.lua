-- fill_fact: put what a reader found in the database into the cache, unless it was dropped meanwhile.
--
-- KEYS[1]  the fact  KEYS[2] its lease
-- ARGV[1]  the reader's lease  ARGV[2] the fact's text  ARGV[3] its life in ms
--
-- Returns 1 if the cache took it, else 0.

if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
