-- Shorten leases that are longer than this, or endless. Times are milliseconds.
--
-- A mistyped command leaves a key without a TTL, and a clock of Redis that went back lets every TTL last
-- longer. A holder that lives renews its lease as ever.
--
-- Replay: the same result.
--
-- KEYS     the locks
-- ARGV[1]  the longest lease
--
-- Returns nothing.

for _, name in ipairs(KEYS) do
  local left = redis.call('PTTL', name)
  if left == -1 or left > tonumber(ARGV[1]) then
    redis.call('PEXPIRE', name, ARGV[1])
  end
end
