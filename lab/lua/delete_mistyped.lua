-- delete_mistyped: like delete_if_own, but with KEY in place of KEYS.
--
-- KEYS[1]  the lock
-- ARGV[1]  the holder's value
--
-- Returns nothing: in a script of Redis, a global variable that does not exist is an error.
-- luacheck: ignore KEY

if redis.call('GET', KEY[1]) ~= ARGV[1] then return 0 end -- breaks: errors
return redis.call('DEL', KEYS[1])
