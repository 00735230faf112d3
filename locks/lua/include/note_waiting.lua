-- @include digits
-- @include extend_ttl
-- @include now_ms

-- Note how many threads of a process wait for a lock, so that a release wakes one of them and the list
-- of locks shows them. Unless renewed, a note expires after 'ttl'. A negative number changes nothing.
local function note_waiting(waiting, process, count, ttl)
  count = tonumber(count)
  if count > 0 then
    redis.call('HSET', waiting, process, digits(count) .. ' ' .. digits(now_ms() + ttl))
    extend_ttl(waiting, ttl)
  elseif count == 0 then
    redis.call('HDEL', waiting, process)
  end
end
