-- record_batch: record the entries that are about to be written, and give the batch its number.
--
-- The number rises with each batch of a sale, and the sale's row stores it with the batch. A ledger
-- that gives a number which the row has stored already went back in time. The record outlives a
-- worker that dies, and names the entries that may have killed it.
--
-- KEYS[1…6]  the contents of the ledger (read_ledger)
-- KEYS[7]    trying  string  <time in ms>;<order ids>
-- ARGV[1]    identity of the sale, or 0 for any
-- ARGV[2…]   the order ids of the batch
--
-- Returns the number in digits, or '' if the ledger is not loaded, or is that of another sale.
-- @include read_ledger
-- @include write_state
-- @include integer
-- @include now_in_ms

local sale = read_ledger()
if not sale or (ARGV[1] ~= '0' and ARGV[1] ~= sale.identity) then return '' end
redis.call('SET', KEYS[7], integer(now_in_ms()) .. ';' .. table.concat(ARGV, ' ', 2))
sale.batch = integer(sale.batch + 1)
write_state(sale)
return sale.batch
