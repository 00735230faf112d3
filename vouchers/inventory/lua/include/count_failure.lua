-- Count a failure of an entry that was written alone, and return how many were counted.
--
-- Failures within a second count as one: they have one cause. `tries` holds <count> <time in ms>.
local FAILURE_GAP_MS = 1000

local function count_failure(tries, order_id, now_ms)
  local count, last_ms = string.match(redis.call('HGET', tries, order_id) or '', '^(%d+) (%d+)$')
  count, last_ms = tonumber(count or 0), tonumber(last_ms or 0)
  if math.abs(now_ms - last_ms) >= FAILURE_GAP_MS then
    count = count + 1
    redis.call('HSET', tries, order_id, count .. ' ' .. integer(now_ms))
  end
  return count
end
