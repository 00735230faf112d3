-- queue_losers: put those who did not win a draw on the waiting list. Safe to repeat.
--
-- KEYS     the contents of the ledger (read_ledger)
-- ARGV[1]  identity of the sale
-- ARGV[2…] groups of three: order id, user id, time of joining in ms, which rises in drawn order
--
-- Returns 1, or 0 if the ledger is not loaded or is that of another sale.
-- @include read_ledger
-- @include now_in_ms
-- @include unset_plain
-- @include give_units

local sale = read_ledger()
if not sale or sale.identity ~= ARGV[1] then return 0 end
unset_plain(sale)
for i = 2, #ARGV, 3 do
  local order_id, user_id = ARGV[i], ARGV[i + 1]
  if redis.call('HGET', KEYS[1], user_id .. ':1') ~= order_id
      and redis.call('HEXISTS', KEYS[3], order_id) == 0 then
    redis.call('ZADD', KEYS[6], ARGV[i + 2], order_id .. ':' .. user_id)
  end
end
give_units(sale, now_in_ms())
return 1
