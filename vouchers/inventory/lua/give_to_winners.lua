-- give_to_winners: make winners of a draw pending, like buyers who have reserved. Safe to repeat.
--
-- KEYS[1…6]  the contents of the ledger (read_ledger)  KEYS[7] entries  hash  (read_entries)
-- ARGV[1]  identity of the sale
-- ARGV[2…] pairs of order id and user id, in drawn order
--
-- Returns {code, given, short}
--   GIVEN       `given` units went to winners now; for `short` of them no unit was left
--   NOT_LOADED  the ledger is not loaded, or it is that of another sale
-- @include read_ledger
-- @include now_in_ms
-- @include integer
-- @include free_units
-- @include take_unit
-- @include note_last_unit

local sale = read_ledger()
if not sale or sale.identity ~= ARGV[1] then return {'NOT_LOADED', 0, 0} end
if has_type(KEYS[7], 'hash') and redis.call('HGET', KEYS[7], 'build') == sale.build then
  redis.call('HSET', KEYS[7], 'phase', 'drawn')
end
local now, free, given, short = integer(now_in_ms()), free_units(sale), 0, 0
for i = 2, #ARGV, 2 do
  local order_id, user_id = ARGV[i], ARGV[i + 1]
  local known = redis.call('HEXISTS', KEYS[1], user_id .. ':1') == 1
    or redis.call('HEXISTS', KEYS[3], order_id) == 1
  if not known and free > 0 then
    take_unit(order_id, user_id, 1, now)
    given, free = given + 1, free - 1
    if free == 0 then note_last_unit(sale, now) end
  elseif not known then
    short = short + 1
  end
end
return {'GIVEN', given, short}
