-- reserve: accept one buyer of a sale, or refuse by name. Safe to repeat.
--
-- Times are Redis TIME in milliseconds. Ids are strings: a Lua number is a double.
-- Everything is checked before anything is written, because a script that fails keeps its earlier
-- writes.
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
-- Returns {code, …}
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
-- @include read_ledger
-- @include check_buyer
-- @include now_in_ms
-- @include integer
-- @include give_units

local order_id, user_id, kick_ms = ARGV[1], ARGV[2], ARGV[3]

-- Return 1 if the caller must publish a fulfil task.
local function set_kick()
  return redis.call('SET', KEYS[8], '1', 'NX', 'PX', kick_ms) and 1 or 0
end

local sale = read_ledger()
if not sale then return {'NOT_LOADED'} end
if ARGV[5] ~= '' and ARGV[5] ~= sale.identity then return {'OTHER_SALE'} end

-- The limit, and the same answer for the same order id.
local code, known_id, free_unit = check_buyer(sale, order_id, user_id)
if code then
  -- An earlier connection wrote this. The same value again is replicated after it, and acknowledged.
  if ARGV[6] and code == 'ACCEPTED' then redis.call('HSET', KEYS[1], 'epoch', sale.epoch) end
  return {code, known_id, 0}
end

local now_ms = now_in_ms()
if now_ms >= tonumber(sale.ends_at_ms) then return {'ENDED'} end
if sale.paused ~= '0' then return {'PAUSED'} end
if now_ms < tonumber(sale.begins_at_ms) then return {'NOT_STARTED'} end
if free_units(sale) > 0 and redis.call('ZCARD', KEYS[7]) > 0 then
  give_units(sale, now_ms) -- the waiting list comes first, and this buyer may be on it
  code, known_id, free_unit = check_buyer(sale, order_id, user_id)
  if code then return {code, known_id, code == 'ACCEPTED' and set_kick() or 0} end
end
if free_units(sale) <= redis.call('ZCARD', KEYS[7]) then
  return {'SOLD_OUT', integer(now_ms), redis.call('HGET', KEYS[1], 'sold_out_at_ms') or ''}
end
if tonumber(ARGV[4]) > 0 then
  local oldest_ms = redis.call('ZRANGEBYSCORE', KEYS[3], 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  if oldest_ms and now_ms - oldest_ms > tonumber(ARGV[4]) then
    return {'BEHIND', integer(now_ms - oldest_ms)}
  end
end

take_unit(sale, order_id, user_id, free_unit, now_ms)
return {'ACCEPTED', order_id, set_kick()}
