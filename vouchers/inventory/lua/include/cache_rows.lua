-- @include drop_wrong_type
-- @include now_in_ms
-- @include integer
-- @include chunk_size
-- Cache what rows say, for owners who ask for receipts. An order that has a copy already keeps it,
-- and one whose row is changing gets none (invalidate_rows).
--
-- copies      the keys of the two hashes order id -> copy
-- changing    the key of the orders whose rows are changing
-- rotation_ms how long each hash takes new copies
-- id_at, row_at, count  ARGV has `count` order ids from `id_at` on, and what the row of each says
--             from `row_at` on, or '' for no copy
--
-- The two hashes take new copies in turns of rotation_ms. A hash expires as a whole when its own
-- next turn starts, so it is empty then and no copy is older than two turns.
local function cache_rows(copies, changing, rotation_ms, id_at, row_at, count)
  for _, key in ipairs(copies) do drop_wrong_type(key, 'hash') end
  drop_wrong_type(changing, 'zset')
  local turn = math.floor(now_in_ms() / rotation_ms)
  local current = copies[turn % 2 + 1]
  for from = 0, count - 1, CHUNK_SIZE do
    local size = math.min(CHUNK_SIZE, count - from)
    local first, last = id_at + from, id_at + from + size - 1
    local even = redis.call('HMGET', copies[1], unpack(ARGV, first, last))
    local odd = redis.call('HMGET', copies[2], unpack(ARGV, first, last))
    local marks = redis.call('ZMSCORE', changing, unpack(ARGV, first, last))
    local new = {}
    for i = 1, size do
      local row = ARGV[row_at + from + i - 1]
      if row ~= '' and not (even[i] or odd[i] or marks[i]) then
        new[#new + 1] = ARGV[first + i - 1]
        new[#new + 1] = row
      end
    end
    if #new > 0 then redis.call('HSET', current, unpack(new)) end
  end
  -- Only a hash that was created just now has no expiry. A later one would keep old copies alive.
  if redis.call('PTTL', current) == -1 then
    redis.call('PEXPIREAT', current, integer((turn + 2) * rotation_ms))
  end
end
