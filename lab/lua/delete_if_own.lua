-- delete_if_own: let go of a lock, if it is still this holder's.
--
-- KEYS[1]  the lock
-- ARGV[1]  the value that its holder has written
--
-- Returns 1 where it was, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
