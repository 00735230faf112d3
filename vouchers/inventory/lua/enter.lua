-- enter: accept one buyer's entry in a draw, or refuse by name. Safe to repeat.
--
-- KEYS[1…6]  the contents of the ledger (read_ledger)
-- KEYS[7]    entries  hash  (read_entries)  KEYS[8]  fresh  zset  (log_entry)
-- KEYS[9]    limits  KEYS[10] limited  KEYS[11] price  KEYS[12] sale, as in reserve.lua
-- ARGV[1]  order id  ARGV[2] user id
-- ARGV[3]  identity of the sale that the buyer asked for, or '' if the caller knows that it is this one
-- ARGV[4]  1 if WAIT follows, which covers only writes of its own connection
-- ARGV[5]  a:<address of the client>, '' if it has no limit
-- ARGV[6]  most new entries of an address in a window, if the sale has no limit of its own; 0: any number
-- ARGV[7]  the price that the buyer agrees to, in cents; '' for any
--
-- Returns one text: a code, and an order id after a space
--   ACCEPTED         the order id, entered now or by an earlier call, even if it has ended
--   ALREADY_ORDERED  the order id of the buyer's entry
--   NOT_LOADED       the ledger is not loaded
--   OTHER_SALE       the ledger is that of another sale with this id
--   OTHER_MODE       the sale is no draw
--   PAUSED           the sale is paused
--   NOT_STARTED      the sale has not started
--   ENDED            the draw takes no entries any more
--   PRICE_CHANGED    the price in cents, which is not the one that the buyer agrees to
--   LIMITED          the subject that is at its limit, and the milliseconds until the next window
-- luacheck: ignore 431 (functions included in a block have parameters with the names of variables)
-- @include now_in_ms
-- @include integer
-- @include read_sale
-- @include others_are_whole
-- @include read_entries
-- @include log_entry
-- @include newer_format

local order_id, user_id = ARGV[1], ARGV[2]
local sale = read_sale()
if not sale or sale.plain == '0' and not others_are_whole() then return 'NOT_LOADED' end
if ARGV[3] ~= '' and ARGV[3] ~= sale.identity then return 'OTHER_SALE' end
if string.sub(sale.mode_terms, -1) ~= 'd' then return 'OTHER_MODE' end
local entry, phase = read_entries(KEYS[1], KEYS[7], sale.build, user_id)
if not phase or newer_format(KEYS[12]) then return 'NOT_LOADED' end

local known_id = entry and string.match(entry, '^(%d+):')
if known_id == order_id then
  -- An earlier connection wrote this. The same value again is replicated after it, and acknowledged.
  if ARGV[4] == '1' then redis.call('HSET', KEYS[7], user_id, entry) end
  return 'ACCEPTED' .. ' ' .. order_id
end
if sale.plain == '0' then
  local ended = redis.call('HGET', KEYS[3], order_id)
  if ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':' then
    return 'ACCEPTED' .. ' ' .. order_id
  end
end
if known_id then return 'ALREADY_ORDERED' .. ' ' .. known_id end

local now_ms = now_in_ms()
if now_ms >= tonumber(sale.ends_at_ms) or phase ~= 'open' then return 'ENDED' end
if sale.paused == '1' then return 'PAUSED' end
if now_ms < tonumber(sale.begins_at_ms) then return 'NOT_STARTED' end
local price = ARGV[7] ~= '' and redis.call('MGET', KEYS[11])[1]
if price and price ~= ARGV[7] and string.match(price, '^%d+$') then return 'PRICE_CHANGED' .. ' ' .. price end
local now = integer(now_ms)
local subject, most = ARGV[5], tonumber(sale.per_address ~= '' and sale.per_address or ARGV[6])
if subject ~= '' and most > 0 then
  local count = redis.pcall('HINCRBY', KEYS[9], string.sub(now, 1, -7) .. subject, 1)
  if type(count) ~= 'number' then -- a mistyped command: all counts start anew
    redis.call('UNLINK', KEYS[9])
  elseif count == 1 then -- the hash may be new
    redis.call('PEXPIRE', KEYS[9], 2000000)
  elseif count > most then
    -- @include refuse_limited
    return refuse_limited(KEYS[10], subject, now_ms)
  end
end
log_entry(KEYS[7], KEYS[8], order_id, user_id, now, 'E')
redis.call('HSET', KEYS[7], user_id, order_id .. ':' .. now)
return 'ACCEPTED' .. ' ' .. order_id
