-- confirm: the orders of these entries are committed rows; their promise is kept.
--
-- KEYS[1]  pending  zset
-- KEYS[2]  tries    hash  order id -> attempts
-- KEYS[3]  trying   string  what was tried; it is over now
-- KEYS[4…] written  string  one for each entry: the copy of its row
-- ARGV[1]  so long a copy is kept, in ms
-- ARGV[2…] for each entry three: pending entry (<order id>:<user>:<unit>), order id, and what its row
--          says, or '' where no copy is to be kept
--
-- Returns how many entries were still pending. Replaying it changes nothing.

local confirmed = 0
for i = 2, #ARGV, 3 do
  confirmed = confirmed + redis.call('ZREM', KEYS[1], ARGV[i])
  redis.call('HDEL', KEYS[2], ARGV[i + 1])
  if ARGV[i + 2] ~= '' then
    -- Not where somebody has changed the row already: then it says something else by now.
    redis.call('SET', KEYS[4 + (i - 2) / 3], ARGV[i + 2], 'NX', 'PX', ARGV[1])
  end
end
redis.call('DEL', KEYS[3])
return confirmed
