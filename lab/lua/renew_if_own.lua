-- renew_if_own: restart the lease of a lock if this holder still has it.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder's value
-- ARGV[2]  the lease in milliseconds
--
-- Returns 1 if renewed, else 0.

if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
