-- Extend the TTL of a key to at least this; never shorten it.
local function extend_ttl(key, ms)
  if redis.call('PTTL', key) < tonumber(ms) then
    redis.call('PEXPIRE', key, ms)
  end
end
