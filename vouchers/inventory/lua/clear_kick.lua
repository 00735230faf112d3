-- clear_kick: let the next reservation send a fulfil task, unless one is queued.
--
-- KEYS[1]  kick  string  1: a fulfil task is queued; 0: it has started
--
-- Returns 1 if the kick was cleared, else 0.

if redis.call('MGET', KEYS[1])[1] ~= '0' then return 0 end
return redis.call('DEL', KEYS[1])
