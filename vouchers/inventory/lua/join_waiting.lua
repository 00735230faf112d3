-- join_waiting: put a buyer on the waiting list, or refuse by name. Safe to repeat.
--
-- KEYS     the contents of the ledger (read_ledger)
-- ARGV[1]  order id  ARGV[2] user id  ARGV[3] time of joining, in ms since 1970
-- ARGV[4]  1: put back a buyer whose entry was lost, even if a unit is free or before the start
--
-- Returns {code, order id, queue position}
--   WAITING          the position, from 1; also if the buyer was waiting before
--   ACCEPTED         the order id has its unit, or had it and has ended
--   ALREADY_ORDERED  the order id that the buyer holds, or the ended one that bars another
--   AVAILABLE        a unit is free and nobody waits: the buyer can order it
--   NOT_LOADED       the ledger is not loaded
--   NOT_STARTED      the sale has not started
--   ENDED            the sale has ended
-- @include read_ledger
-- @include check_buyer
-- @include now_in_ms
-- @include free_units
-- @include unset_plain
-- @include gives_until

local order_id, user_id, restoring = ARGV[1], ARGV[2], ARGV[4] == '1'
local sale, units = read_ledger(user_id)
if not sale then return {'NOT_LOADED', '', 0} end

local code, known_id = check_buyer(sale, units, order_id, user_id)
if code then return {code, known_id, 0} end

local now_ms = now_in_ms()
if now_ms >= gives_until(sale) then return {'ENDED', '', 0} end
if now_ms < tonumber(sale.begins_at_ms) and not restoring then return {'NOT_STARTED', '', 0} end
local member = order_id .. ':' .. user_id
local ahead = redis.call('ZRANK', KEYS[6], member)
if not ahead then
  if not restoring and free_units(sale) > 0 and sale.paused == '0'
      and redis.call('ZCARD', KEYS[6]) == 0 then
    return {'AVAILABLE', '', 0}
  end
  unset_plain(sale)
  redis.call('ZADD', KEYS[6], ARGV[3], member)
  ahead = redis.call('ZRANK', KEYS[6], member)
end
return {'WAITING', order_id, ahead + 1}
