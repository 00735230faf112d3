-- Delete a key that is not as its scripts leave it: of another type or without a TTL (a mistyped
-- command), or with a longer TTL than they give it (the clock of Redis went back).
local function repair_key(key, wanted, longest_ms)
  local left = redis.call('PTTL', key)
  if left == -1 or left > longest_ms
      or left >= 0 and redis.call('TYPE', key)['ok'] ~= wanted then
    redis.call('DEL', key)
  end
end
