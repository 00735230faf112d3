-- Pass a wake-up on: the thread that was woken for this lock now waits for another one.
--
-- Replay: another process may be woken as well, which does no harm.
--
-- KEYS[1]  the lock
-- KEYS[2]  its waiting processes
-- ARGV[1]  the channel
-- ARGV[2]  this process
--
-- Returns 1 DONE, or 2 WAKE_HERE if the lock is free and this process must wake a thread of its own.
-- @include wake_one

local DONE, WAKE_HERE = 1, 2

local name, waiting, channel, process = KEYS[1], KEYS[2], ARGV[1], ARGV[2]

if redis.call('EXISTS', name) == 1 then
  return DONE
end
redis.call('HDEL', waiting, process)
return wake_one(channel, process, waiting, name) and WAKE_HERE or DONE
