-- @include drop_wrong_type
-- @include integer
-- Add to the log of what no row has yet: <order id>:<user>:<time in ms>:<E: entered, W: withdrawn>.
-- The order of the log is that of events, so a withdrawal is stored before the next entry.
local function log_entry(entries, fresh, order_id, user_id, now, what)
  drop_wrong_type(fresh, 'zset')
  local number = redis.call('HINCRBY', entries, 'seq', 1)
  redis.call('ZADD', fresh, integer(number), order_id .. ':' .. user_id .. ':' .. now .. ':' .. what)
end
