-- set_aside: put a pending entry aside, or take it back. Safe to repeat.
--
-- An entry that is set aside stays in pending, so its unit stays taken and its receipt queued; its
-- score is raised out of the reach of workers.
--
-- KEYS[1]  pending  zset  <order id>:<user>:<unit>
-- KEYS[2]  tries    hash  order id -> <failures> <time of the last in ms>, or 'refuse'
-- ARGV[1]  by how much the score is raised, in ms
-- ARGV[2]  aside, retry or refuse
-- ARGV[3]  <order id>:<user>:<unit>  ARGV[4] order id
--
-- Returns 1 if the entry was moved, else 0.
-- @include integer

local score, aside_ms = redis.call('ZSCORE', KEYS[1], ARGV[3]), tonumber(ARGV[1])
local is_aside = score and tonumber(score) >= aside_ms
if not score or is_aside == (ARGV[2] == 'aside') then return 0 end
redis.call('ZADD', KEYS[1], integer(score + (is_aside and -aside_ms or aside_ms)), ARGV[3])
if ARGV[2] == 'refuse' then
  redis.call('HSET', KEYS[2], ARGV[4], 'refuse')
else
  redis.call('HDEL', KEYS[2], ARGV[4])
end
return 1
