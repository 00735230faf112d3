-- compare_nil: like decide, but what GET finds is compared as it is.
--
-- KEYS[1]  stock   string  units left
-- KEYS[2]  buyers  set     user ids that got a unit
-- KEYS[3]  window  hash    start and end of the sale; not read
-- ARGV[1]  user id
--
-- Returns TAKEN, SOLD_OUT or ALREADY_ORDERED. For a missing key, GET gives false and tonumber gives nil,
-- which Lua compares with no number: the script ends with an error.

if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 'SOLD_OUT' end -- breaks: errors, undersold
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'ALREADY_ORDERED' end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 'TAKEN'
