-- end_kick: let the next reservation send a fulfil task, unless one is on its way.
--
-- KEYS[1]  kick  string  1: a fulfil task is on its way, 0: one has been taken up
--
-- Returns 1 where it is gone, or 0.

if redis.call('GET', KEYS[1]) ~= '0' then return 0 end
return redis.call('DEL', KEYS[1])
