-- join_waiting: put a buyer on the waiting list, or refuse by name. Safe to repeat.
--
-- KEYS[1…6] the contents of the ledger (read_ledger)  KEYS[7] sale (newer_format)
-- ARGV[1]  order id  ARGV[2] user id  ARGV[3] time of joining, in ms since 1970
-- ARGV[4]  1: put back a buyer whose entry was lost, even if a unit is free or before the start
-- ARGV[5]  how many units are wanted  ARGV[6] 1: all of them or none; else as they come
--
-- Returns {code, order id, queue position, how many units are still wanted}
--   WAITING          the position, from 1; also if the buyer was waiting before
--   ACCEPTED         the buyer has what the list gives under this order id, or had it and it has ended
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--   TOO_FEW          how many units the sale's limit allows: fewer than all that are wanted
--   AVAILABLE        units are free for which nobody waits: the buyer can order them
--   NOT_LOADED       the ledger is not loaded
--   NOT_STARTED      the sale has not started
--   ENDED            the sale has ended
-- @include read_ledger
-- @include check_buyer
-- @include now_in_ms
-- @include free_units
-- @include unset_plain
-- @include give_units
-- @include place_in_line
-- @include newer_format

local order_id, user_id, restoring = ARGV[1], ARGV[2], ARGV[4] == '1'
local wanted, all = tonumber(ARGV[5]), ARGV[6] == '1'
local sale, units = read_ledger(user_id)
if not sale or newer_format(KEYS[7]) then return {'NOT_LOADED', '', 0, 0} end

local function was_given(id)
  local _, _, has_unit = buyer_units(units, id)
  local ended = sale.plain == '0' and redis.call('HGET', KEYS[3], id)
  return has_unit or ended and string.sub(ended, 1, #user_id + 1) == user_id .. ':'
end
-- What came so far, purchase by purchase.
local next_id = order_id
while wanted > 0 and was_given(next_id) do
  local count = all and wanted or 1
  while count < wanted and was_given(id_after(next_id, count)) do count = count + 1 end
  next_id, wanted = id_after(next_id, 64), wanted - count
end
if wanted == 0 then return {'ACCEPTED', order_id, 0, 0} end

local code, known_id = check_buyer(sale, units, next_id, user_id)
local spare, held_id = spare_units(units)
if all and #spare < wanted and not code then
  if not held_id then return {'TOO_FEW', tostring(#spare), 0, 0} end
  code, known_id = 'ALREADY_ORDERED', held_id
end
if code and next_id ~= order_id then code, known_id = 'ACCEPTED', order_id end
if code then return {code, known_id, 0, 0} end

local now_ms = now_in_ms()
if now_ms >= gives_until(sale) then return {'ENDED', '', 0, 0} end
if now_ms < tonumber(sale.begins_at_ms) and not restoring then return {'NOT_STARTED', '', 0, 0} end
local member = next_id .. ':' .. user_id
if not redis.call('ZSCORE', KEYS[6], member) then
  if not restoring and sale.paused == '0' and free_units(sale) >= (all and wanted or 1) then
    -- Those who wait come first; what none of them can take is for anybody.
    local _, is_over = give_units(sale, now_ms)
    if is_over and free_units(sale) >= (all and wanted or 1) then return {'AVAILABLE', '', 0, 0} end
  end
  unset_plain(sale)
  redis.call('ZADD', KEYS[6], line_score(tonumber(ARGV[3]), wanted, all), member)
end
local place, still = place_in_line(KEYS[6], member)
return {'WAITING', order_id, place, still}
