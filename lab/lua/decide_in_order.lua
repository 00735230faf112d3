-- decide_in_order: like decide, but look at the buyer first, then at the window, then at the stock.
--
-- KEYS[1]  stock   string  units left
-- KEYS[2]  buyers  set     user ids that got a unit
-- KEYS[3]  window  hash    begins_ms, ends_ms: start and end of the sale, by the clock of Redis
-- ARGV[1]  user id
--
-- Returns TAKEN, ALREADY_ORDERED, NOT_ON_SALE or SOLD_OUT. If the keys are lost, nothing is on sale.

if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return 'ALREADY_ORDERED' end
local now, window = redis.call('TIME'), redis.call('HMGET', KEYS[3], 'begins_ms', 'ends_ms')
local now_ms = now[1] * 1000 + math.floor(now[2] / 1000)
if now_ms < tonumber(window[1] or 0) or now_ms >= tonumber(window[2] or 0) then return 'NOT_ON_SALE' end
if tonumber(redis.call('GET', KEYS[1]) or 0) < 1 then return 'SOLD_OUT' end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 'TAKEN'
