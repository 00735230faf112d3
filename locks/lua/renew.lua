-- Gives locks a whole lease from now, if every one of them is still this owner's. Milliseconds.
--
-- Replay: the same again. A copy that comes after the release changes nothing: no lock is the
-- owner's any more.
--
-- KEYS[1…]  the locks
-- ARGV[1]   owner
-- ARGV[2]   lease
--
-- Returns 1 RENEWED, or 2 LOST where at least one is not the owner's; then none is renewed.

local RENEWED, LOST = 1, 2

local prefix, lease = ARGV[1] .. ' ', ARGV[2]

for _, name in ipairs(KEYS) do
  -- MGET answers nothing, not an error, for a key of another type.
  local value = redis.call('MGET', name)[1]
  if not value or string.sub(value, 1, #prefix) ~= prefix then
    return LOST
  end
end

for _, name in ipairs(KEYS) do
  redis.call('PEXPIRE', name, lease)
end
return RENEWED
