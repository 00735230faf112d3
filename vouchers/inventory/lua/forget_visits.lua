-- forget_visits: drop visits that are stored, each only if it has not changed since. Safe to repeat.
--
-- KEYS[1]  visits (visit_room)
-- ARGV     pairs of a field and the value that is stored
--
-- Returns how many were dropped.
local dropped = 0
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    dropped = dropped + redis.call('HDEL', KEYS[1], ARGV[i])
  end
end
return dropped
