-- set_aside: put the pending entries of a purchase aside, or take them back. Safe to repeat.
--
-- An entry that is set aside stays in pending, so its unit stays taken and its receipt queued; its
-- score is raised out of the reach of workers.
--
-- KEYS[1]  pending  zset  <order id>:<user>:<unit>
-- KEYS[2]  tries    hash  order id -> <failures> <time of the last in ms>, or 'refuse'
-- ARGV[1]  by how much the score is raised, in ms
-- ARGV[2]  aside, retry or refuse
-- ARGV[3…] pairs, one for each entry: <order id>:<user>:<unit>, order id
--
-- Returns how many entries were moved.
-- @include integer

local aside_ms, moved = tonumber(ARGV[1]), 0
for i = 3, #ARGV, 2 do
  local score = redis.call('ZSCORE', KEYS[1], ARGV[i])
  local is_aside = score and tonumber(score) >= aside_ms
  if score and is_aside ~= (ARGV[2] == 'aside') then
    moved = moved + 1
    redis.call('ZADD', KEYS[1], integer(score + (is_aside and -aside_ms or aside_ms)), ARGV[i])
    if ARGV[2] == 'refuse' then
      redis.call('HSET', KEYS[2], ARGV[i + 1], 'refuse')
    else
      redis.call('HDEL', KEYS[2], ARGV[i + 1])
    end
  end
end
return moved
