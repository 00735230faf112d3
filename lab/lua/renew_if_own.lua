-- renew_if_own: let a lock stand for its whole lease again, if it is still this holder's.
--
-- KEYS[1]  the lock
-- ARGV[1]  the value that its holder has written
-- ARGV[2]  the lease in milliseconds
--
-- Returns 1 where it was, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
