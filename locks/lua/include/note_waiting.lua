-- @include digits
-- @include extend_ttl
-- @include now_ms

-- Notes how many threads of a process wait for a lock: for the list of locks, and so that a release
-- wakes one of them. A note that is not renewed ends after 'ttl'. A negative number changes nothing.
local function note_waiting(waiting, process, count, ttl)
  count = tonumber(count)
  if count > 0 then
    redis.call('HSET', waiting, process, digits(count) .. ' ' .. digits(now_ms() + ttl))
    extend_ttl(waiting, ttl)
  elseif count == 0 then
    redis.call('HDEL', waiting, process)
  end
end
