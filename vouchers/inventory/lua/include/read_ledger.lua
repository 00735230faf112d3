-- @include read_sale
-- Return what read_sale returns, of a ledger in which `pending` is whole, too.
--
-- Scripts that read a whole ledger take its contents as their first seven keys:
--   KEYS[1] sale     hash  `state`: all of it in one text (write_state); and the run id of Redis
--   KEYS[2] buyers   hash  <user>:<unit> -> order id; and the sentinel `epoch`
--   KEYS[3] pending  zset  <order id>:<user>:<unit> by the time it was accepted
--   KEYS[4] ended    hash  order id -> <user>:<reason>
--   KEYS[5] tries    hash  order id -> attempts to write it
--   KEYS[6] barred   hash  user -> the ended order that bars another, where the sale says so
--   KEYS[7] waiting  zset  <order id>:<user> by the time of joining the waiting list
local function read_ledger(user_id)
  if not has_type(KEYS[3], 'zset') then return nil end
  return read_sale(user_id)
end
