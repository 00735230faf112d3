-- @include now_ms
-- @include publish

-- Wake one of the waiting processes, drawn at random. Return true if the releasing process must wake a
-- thread of its own: it was drawn, or no other process is known to wait.
local function wake_one(channel, process, waiting, name)
  while true do
    local drawn = redis.pcall('HRANDFIELD', waiting, 1, 'WITHVALUES')
    if drawn.err then -- a key of another type
      redis.call('DEL', waiting)
      return true
    end
    local other, note = drawn[1], drawn[2]
    if not other then
      return true
    end
    local counts = tonumber(string.match(note, '%d+$') or '0') > now_ms()
    if counts and other == process then
      return true
    end
    if counts and publish(channel .. ':' .. other, name) > 0 then
      return false
    end
    redis.call('HDEL', waiting, other) -- it has died, or polls
  end
end
