-- begin_batch: these entries are about to be written; give the batch its number.
--
-- The number rises with each batch of a sale and is stored in its row with the batch, so a ledger that
-- gives a number which the row has seen already went back in time. The note of what is being tried
-- stays behind when its worker dies, and names the entries that may have killed it.
--
-- KEYS[1…7]  the contents
-- KEYS[8]    trying  string: order ids
-- ARGV       the order ids of the batch
--
-- Returns the number in digits, or '' where the ledger is not loaded.

if not read_ledger() then return '' end
redis.call('SET', KEYS[8], table.concat(ARGV, ' '))
return integer(redis.call('HINCRBY', KEYS[1], 'batch', 1))
