-- set_kick: note that a fulfil task is being sent for a sale, unless one is queued.
--
-- A kick whose task has started (value 0) is replaced: the worker itself sends the next task.
--
-- KEYS[1]  kick  string  1: a fulfil task is queued; 0: it has started
-- ARGV[1]  milliseconds that a kick lasts
--
-- Returns 1 if the caller must send the task, else 0.

if redis.call('MGET', KEYS[1])[1] == '1' then return 0 end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 1
