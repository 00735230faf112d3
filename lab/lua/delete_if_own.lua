-- delete_if_own: delete a lock if this holder still has it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder's value
--
-- Returns 1 if deleted, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
