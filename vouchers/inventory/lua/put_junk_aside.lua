-- put_junk_aside: take out of the ledger what is no entry of it. Safe to repeat.
--
-- KEYS[1]  buyers  KEYS[2] pending
-- KEYS[3]  junk    list  what was taken out, newest first: <key> <name> <value>
-- ARGV[1]  the most values to keep  ARGV[2] milliseconds to keep them
-- ARGV[3…] fields of buyers and members of pending; a name may be in either
--
-- Returns how many were taken out.

local taken_out = 0
local function keep(key, name, value)
  redis.call('LPUSH', KEYS[3], key .. ' ' .. name .. ' ' .. value)
  taken_out = taken_out + 1
end

if redis.call('TYPE', KEYS[3])['ok'] ~= 'list' then redis.call('DEL', KEYS[3]) end
for i = 3, #ARGV do
  local held = redis.call('HGET', KEYS[1], ARGV[i])
  if held and redis.call('HDEL', KEYS[1], ARGV[i]) then keep('buyers', ARGV[i], held) end
  local score = redis.call('ZSCORE', KEYS[2], ARGV[i])
  if score and redis.call('ZREM', KEYS[2], ARGV[i]) then keep('pending', ARGV[i], score) end
end
redis.call('LTRIM', KEYS[3], 0, ARGV[1] - 1)
redis.call('PEXPIRE', KEYS[3], ARGV[2])
return taken_out
