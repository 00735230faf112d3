-- @include line_scores
-- Return a member's position on the waiting list `key`, from 1, and how many units it still wants; or nil.
local function place_in_line(key, member)
  local score = redis.call('ZSCORE', key, member)
  if not score then return nil end
  local joined_ms, units, all = read_line_score(tonumber(score))
  local ahead, own = redis.call('ZRANK', key, member), all and units or 1
  if redis.call('ZCOUNT', key, integer(2 * ALL_OF), '+inf') == 0 then return ahead + 1, units end
  if all then ahead = ahead - redis.call('ZCOUNT', key, '-inf', '(' .. integer(own * ALL_OF)) end
  for n = 1, MOST_WANTED do
    if n ~= own then
      local from, earlier = line_range(n), '(' .. integer((n > 1 and n * ALL_OF or 0) + joined_ms)
      ahead = ahead + redis.call('ZCOUNT', key, from, earlier)
    end
  end
  return ahead + 1, units
end
