-- decide: give this buyer one unit, or say why not. The counting and the remembering are one step:
-- no other command comes between them.
--
-- KEYS[1]  stock   string  units left
-- KEYS[2]  buyers  set     who was given one
-- ARGV[1]  user id
--
-- Returns TAKEN, SOLD_OUT or ALREADY_ORDERED. Where the keys are lost, all is sold out.

if tonumber(redis.call('GET', KEYS[1]) or 0) < 1 then return 'SOLD_OUT' end
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'ALREADY_ORDERED' end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 'TAKEN'
