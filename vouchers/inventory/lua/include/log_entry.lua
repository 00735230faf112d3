-- @include integer
-- Add to the log of what no row has yet: <order id>:<user>:<time in ms>:<E: entered, W: withdrawn>.
-- The order of the log is that of events, so a withdrawal is stored before the next entry.
local function log_entry(entries, fresh, order_id, user_id, now, what)
  local number = integer(redis.call('HINCRBY', entries, 'seq', 1))
  local member = order_id .. ':' .. user_id .. ':' .. now .. ':' .. what
  if type(redis.pcall('ZADD', fresh, number, member)) == 'table' then -- a wrong type
    redis.call('UNLINK', fresh)
    redis.call('ZADD', fresh, number, member)
  end
end
