-- kick: say that a fulfil task is being sent for a sale, unless one is on its way.
--
-- Where one has been taken up (value 0) another may be sent: its worker asks, to hand on.
--
-- KEYS[1]  kick  string
-- ARGV[1]  milliseconds that a kick stands
--
-- Returns 1 SEND, or 0.

if redis.call('GET', KEYS[1]) == '1' then return 0 end
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return 1
