-- Passes a wake-up on: who was woken for this lock has gone to wait for another one.
--
-- Replay: another process may be woken as well, which does no harm.
--
-- KEYS[1]  the lock
-- KEYS[2]  its waiting processes
-- ARGV[1]  the channel
-- ARGV[2]  this process
--
-- Returns 1 where the lock is free and this process has one to wake, else 0.

local name, waiting, channel, process = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

if redis.call('EXISTS', name) == 1 then
  return 0
end
redis.call('HDEL', waiting, process)
return wake_one(channel, process, waiting, name) and 1 or 0
