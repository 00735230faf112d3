-- begin_batch: these entries are about to be written; give the batch its number.
--
-- The number rises with each batch of a sale and is stored in its row with the batch, so a ledger that
-- gives a number which the row has seen already went back in time. The note of what is being tried
-- stays behind when its worker dies, and names the entries that may have killed it.
--
-- KEYS[1]  sale  KEYS[2] buyers  KEYS[3] pending  KEYS[4] ended  KEYS[5] tries
-- KEYS[6]  trying  string: order ids
-- ARGV     the order ids of the batch
--
-- Returns the number in digits, or '' where the ledger is not loaded.

if not read_ledger(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) then return '' end
redis.call('SET', KEYS[6], table.concat(ARGV, ' '))
return integer(redis.call('HINCRBY', KEYS[1], 'batch', 1))
