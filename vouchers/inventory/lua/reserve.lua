-- reserve: accept a purchase of one buyer of a sale, or refuse by name. Safe to repeat.
--
-- A purchase is one unit, or several with an order id each. Sent again with another quantity, it gets
-- the first answer: its first id tells.
--
-- Times are Redis TIME in milliseconds. Ids are strings: a Lua number is a double.
-- Everything is checked before anything is written, because a script that fails keeps its earlier
-- writes. A refusal does not read `pending`: it is right whatever that holds.
--
-- KEYS[1…6]  the contents of the ledger (read_ledger)
-- KEYS[7]    kick  string  1: a fulfil task is queued; 0: it has started
-- KEYS[8]    pace  string  how fast entries are confirmed (confirm.lua)
-- KEYS[9]    limits   hash  <window><subject> -> new orders in it; a subject is a:<address> or u:<user>;
--                           and <window><ARGV[11]>: that first order is counted
-- KEYS[10]   limited  zset  subjects at their limit in this window, by the orders refused for it
-- KEYS[11]   price    string  in cents; missing: not known
-- KEYS[12]   sale     hash    with the format of the ledger, which the first order of a burst looks at
-- ARGV[1]  order id of the first unit
-- ARGV[2]  user id
-- ARGV[3]  milliseconds that a kick lasts
-- ARGV[4]  accept no new buyer who would wait longer than this for a row, in ms; 0: any wait
-- ARGV[5]  identity of the sale that the buyer asked for, or '' if the caller knows that it is this one
-- ARGV[6]  when the order id was minted, in ms; '' if the waiting room has let this buyer in
-- ARGV[7]  1 if WAIT follows, which covers only writes of its own connection
-- ARGV[8]  a:<address of the client>; '' if it has no limit, or this is its first order in this process,
--          which is counted with the second (Note [First orders] in order_limits.py)
-- ARGV[9]  most new orders of an address in a window, if the sale has no limit of its own; 0: any number
-- ARGV[10] most new orders of an account in a window, and one more for each further unit that the sale's
--          limit allows; 0: any number
-- ARGV[11] names the first order that this address had in this process
-- ARGV[12] the price that the buyer agrees to, in cents; '' for any
-- ARGV[13] the fewest units that the buyer wants; missing: this is for one unit
-- ARGV[14…] the order ids of the further units that the buyer wants
--
-- Returns one text, which costs Redis less than a list: a code, and its figures after spaces
--   ACCEPTED         the order id, accepted now or by an earlier call; and 1 if the caller must
--                    publish a fulfil task, else 0
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--   NOT_ADMITTED     the waiting room has not let this buyer in, and was open when the id was minted
--   BEHIND           the age of the oldest pending entry in ms: orders are written too slowly
--   LIMITED          the subject that is at its limit, and the milliseconds until the next window
--   PRICE_CHANGED    the price in cents, which is not the one that the buyer agrees to
--   TOO_FEW          how many units the buyer could get: fewer than wanted at least
--   SOLD_OUT         when this request arrived, and when the last unit went or '', both in ms
--   NOT_LOADED       the ledger is not loaded
--   OTHER_SALE       the ledger is that of another sale with this id
--   PAUSED           the sale is paused
--   NOT_STARTED      the sale has not started
--   ENDED            the sale has ended
--   OTHER_MODE       the sale is a draw: only enter.lua accepts, and the draw gives the units
-- state_words reads `sale_fields`: the sale's state, and `first`, the order id of the buyer's first unit.
-- The state is 14 words, each a local:
--   build identity total begins_at_ms ends_at_ms limit paused rebuy plain loaded_at_ms batch
--   sold_out_at_ms mode_terms per_address
-- luacheck: ignore 431 (functions included in a block have parameters with the names of variables)
-- @include now_in_ms
-- @include integer

local order_id, user_id = ARGV[1], ARGV[2]
-- @include state_words
if not build then return 'NOT_LOADED' end
if ARGV[5] ~= '' and ARGV[5] ~= identity then return 'OTHER_SALE' end

-- The limit, and the same answer for the same order id. Redis makes functions anew for each call. So
-- most of a crowd go without: buyers who hold no unit, in a sale in which nothing has ended.
local free_unit = 1
if first or limit ~= '1' or plain == '0' then
  -- @include read_units
  -- @include check_buyer
  -- @include others_are_whole
  -- @include sale_table
  if plain == '0' and not others_are_whole() then return 'NOT_LOADED' end
  local code, known_id
  code, known_id, free_unit = check_buyer(sale, read_units(user_id, limit, first), order_id, user_id)
  if code then
    -- An earlier connection wrote this. The same value again is replicated after it, and acknowledged.
    if ARGV[7] == '1' and code == 'ACCEPTED' then redis.call('HSET', KEYS[1], 'state', sale_fields[1]) end
    return code .. ' ' .. known_id .. ' 0'
  end
end

local now_ms = now_in_ms()
if now_ms >= tonumber(ends_at_ms) then return 'ENDED' end
if paused == '1' then return 'PAUSED' end
if now_ms < tonumber(begins_at_ms) then return 'NOT_STARTED' end
local free, now = total + 1 - redis.call('HLEN', KEYS[1]), integer(now_ms)
if free <= 0 then return 'SOLD_OUT' .. ' ' .. now .. ' ' .. sold_out_at_ms end

-- Return 1 if the caller must publish a fulfil task; `kick` is what KEYS[7] has.
local function set_kick(kick)
  if kick then return '0' end
  redis.call('SET', KEYS[7], '1', 'PX', ARGV[3])
  return '1'
end

local behind_ms = tonumber(ARGV[4])
local late = redis.pcall('ZCOUNT', KEYS[2], 0, '(' .. integer(now_ms - behind_ms))
if type(late) ~= 'number' then return 'NOT_LOADED' end
-- @include take_unit
local promised = 0 -- at most so many units are the waiting list's
if plain == '0' and redis.call('ZCARD', KEYS[6]) > 0 then
  -- @include newer_format
  if newer_format(KEYS[12]) then return 'NOT_LOADED' end
  -- @include read_units
  -- @include check_buyer
  -- @include give_units
  -- @include sale_table
  local _, is_over = give_units(sale, now_ms) -- the waiting list comes first, and this buyer may be on it
  local code, known_id
  code, known_id, free_unit = check_buyer(sale, read_units(user_id, limit), order_id, user_id)
  if code == 'ACCEPTED' then return code .. ' ' .. known_id .. ' ' .. set_kick(redis.call('MGET', KEYS[7])[1]) end
  if code then return code .. ' ' .. known_id .. ' 0' end
  free = total + 1 - redis.call('HLEN', KEYS[1])
  promised = is_over and 0 or redis.call('ZCARD', KEYS[6]) * limit
  if free <= promised then
    return 'SOLD_OUT' .. ' ' .. now .. ' ' .. sale.sold_out_at_ms
  end
end
if mode_terms ~= '' and string.sub(mode_terms, -1) == 'd' then return 'OTHER_MODE' end
if mode_terms ~= '' and ARGV[6] ~= '' and tonumber(ARGV[6]) >= tonumber(string.match(mode_terms, '^%d+')) then
  return 'NOT_ADMITTED'
end
if behind_ms > 0 and late > 0 then
  -- One who has waited too long is no reason by itself: in a large burst the last ones wait, and a
  -- new buyer comes after few. Without progress nobody knows how long a new one would wait.
  local since, count = string.match(redis.call('MGET', KEYS[8])[1] or '', '^(%d+) (%d+)$')
  if not since or redis.call('ZCARD', KEYS[2]) * (now_ms - since) > behind_ms * count then
    local oldest_ms = redis.call('ZRANGEBYSCORE', KEYS[2], 0, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    return 'BEHIND' .. ' ' .. integer(now_ms - oldest_ms)
  end
end

-- One command for both: an order costs none for its price. A key of a wrong type counts as missing.
local kick, price = unpack(redis.call('MGET', KEYS[7], KEYS[11]))
if not kick then
  -- @include newer_format
  if newer_format(KEYS[12]) then return 'NOT_LOADED' end
end
if ARGV[12] ~= '' and price and price ~= ARGV[12] and string.match(price, '^%d+$') then
  return 'PRICE_CHANGED' .. ' ' .. price
end

-- Several units: those that the buyer wants, the limit leaves and the waiting list does not.
local spare, given = nil, 1
if ARGV[13] then
  -- @include read_units
  -- @include spare_units
  local fewest, free_ones, held_id = tonumber(ARGV[13]), spare_units(read_units(user_id, limit))
  spare = free_ones
  given = math.min(#ARGV - 12, #spare, free - promised)
  if #spare < fewest and held_id then return 'ALREADY_ORDERED' .. ' ' .. held_id end
  if given < fewest then return 'TOO_FEW' .. ' ' .. given end
end

-- Only who would get a unit is counted, so a refusal costs no more. Accounts are counted once something
-- has ended: before that, the sale's limit holds. A window is a thousand seconds, which its name says
-- without arithmetic; each starts anew.
local subject = ARGV[8]
if subject ~= '' or plain == '0' then
  local window, most, count = string.sub(now, 1, -7), tonumber(per_address ~= '' and per_address or ARGV[9]), 0
  if subject ~= '' and most > 0 then
    local was_first = ARGV[11] ~= '' and redis.pcall('HSETNX', KEYS[9], window .. ARGV[11], '')
    count = redis.pcall('HINCRBY', KEYS[9], window .. subject, was_first == 1 and given + 1 or given)
  end
  if plain == '0' and ARGV[10] ~= '0' and type(count) == 'number' and count <= most then
    subject, most = 'u:' .. user_id, ARGV[10] + limit - 1
    count = redis.pcall('HINCRBY', KEYS[9], window .. subject, given)
  end
  if type(count) ~= 'number' then -- a mistyped command: all counts start anew
    redis.call('UNLINK', KEYS[9])
  elseif count <= given + 1 then -- the hash may be new
    redis.call('PEXPIRE', KEYS[9], 2000000)
  end
  if type(count) == 'number' and count > most then
    -- @include refuse_limited
    -- Units that are refused together must not use up what the buyer may still have one by one.
    if given > 1 then redis.call('HINCRBY', KEYS[9], window .. subject, -given) end
    if given > 1 and subject ~= ARGV[8] and ARGV[8] ~= '' then
      redis.call('HINCRBY', KEYS[9], window .. ARGV[8], -given)
    end
    return refuse_limited(KEYS[10], subject, now_ms)
  end
end

take_unit(order_id, user_id, free_unit, now)
for i = 2, given do take_unit(ARGV[12 + i], user_id, spare[i], now) end
if plain == '0' then redis.call('ZREM', KEYS[6], order_id .. ':' .. user_id) end
if free <= given then
  -- @include sale_table
  -- @include note_last_unit
  note_last_unit(sale, now)
end
return 'ACCEPTED' .. ' ' .. order_id .. ' ' .. set_kick(kick)
