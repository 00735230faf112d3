-- reserve: accept one buyer of a sale, or refuse by name. Safe to repeat.
--
-- Times are Redis TIME in milliseconds. Ids are strings: a Lua number is a double.
-- Everything is checked before anything is written, because a script that fails keeps its earlier
-- writes. A refusal does not read `pending`: it is right whatever that holds.
--
-- KEYS[1…7]  the contents of the ledger (read_ledger)
-- KEYS[8]    kick  string  1: a fulfil task is queued; 0: it has started
-- ARGV[1]  order id
-- ARGV[2]  user id
-- ARGV[3]  milliseconds that a kick lasts
-- ARGV[4]  accept no new buyer while the oldest pending entry is older than this, in ms; 0: any age
-- ARGV[5]  identity of the sale that the buyer asked for, or '' if the caller knows that it is this one
-- ARGV[6]  given if WAIT follows, which covers only writes of its own connection
--
-- Returns one text, which costs Redis less than a list: a code, and its figures after spaces
--   ACCEPTED         the order id, accepted now or by an earlier call; and 1 if the caller must
--                    publish a fulfil task, else 0
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--   BEHIND           the age of the oldest pending entry in ms: orders are written too slowly
--   SOLD_OUT         when this request arrived, and when the last unit went or '', both in ms
--   NOT_LOADED       the ledger is not loaded
--   OTHER_SALE       the ledger is that of another sale with this id
--   PAUSED           the sale is paused
--   NOT_STARTED      the sale has not started
--   ENDED            the sale has ended
-- @include read_sale
-- @include check_buyer
-- @include now_in_ms
-- @include integer
-- @include free_units

local order_id, user_id = ARGV[1], ARGV[2]
local sale, units = read_sale(user_id)
if not sale then return 'NOT_LOADED' end
if ARGV[5] ~= '' and ARGV[5] ~= sale.identity then return 'OTHER_SALE' end

-- The limit, and the same answer for the same order id.
local code, known_id, free_unit = check_buyer(sale, units, order_id, user_id)
if code then
  -- An earlier connection wrote this. The same value again is replicated after it, and acknowledged.
  if ARGV[6] and code == 'ACCEPTED' then redis.call('HSET', KEYS[2], 'epoch', sale.sentinel) end
  return code .. ' ' .. known_id .. ' 0'
end

local now_ms = now_in_ms()
if now_ms >= tonumber(sale.ends_at_ms) then return 'ENDED' end
if sale.paused ~= '0' then return 'PAUSED' end
if now_ms < tonumber(sale.begins_at_ms) then return 'NOT_STARTED' end
local free, now = free_units(sale), integer(now_ms)
if free <= 0 then return 'SOLD_OUT' .. ' ' .. now .. ' ' .. sale.sold_out_at_ms end

-- Redis makes the functions of a script anew with each call. A refusal needs none of these.
-- luacheck: push ignore 431 (their parameters have the names of the variables above)
-- @include take_unit
-- @include give_units
-- luacheck: pop
-- Return 1 if the caller must publish a fulfil task.
local function set_kick()
  if redis.call('EXISTS', KEYS[8]) == 1 then return '0' end
  redis.call('SET', KEYS[8], '1', 'PX', ARGV[3])
  return '1'
end

local behind_ms = tonumber(ARGV[4])
local late = redis.pcall('ZCOUNT', KEYS[3], 0, '(' .. integer(now_ms - behind_ms))
if type(late) ~= 'number' then return 'NOT_LOADED' end
local waiting = sale.plain and 0 or redis.call('ZCARD', KEYS[7])
if waiting > 0 then
  give_units(sale, now_ms) -- the waiting list comes first, and this buyer may be on it
  units = read_units(user_id, sale.limit)
  code, known_id, free_unit = check_buyer(sale, units, order_id, user_id)
  if code then return code .. ' ' .. known_id .. ' ' .. (code == 'ACCEPTED' and set_kick() or '0') end
  free = free_units(sale)
  if free <= redis.call('ZCARD', KEYS[7]) then
    return 'SOLD_OUT' .. ' ' .. now .. ' ' .. sale.sold_out_at_ms
  end
end
if behind_ms > 0 and late > 0 then
  local oldest_ms = redis.call('ZRANGEBYSCORE', KEYS[3], 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  return 'BEHIND' .. ' ' .. integer(now_ms - oldest_ms)
end

take_unit(sale, order_id, user_id, free_unit, now, free)
return 'ACCEPTED' .. ' ' .. order_id .. ' ' .. set_kick()
