-- @include has_type
-- @include others_are_whole
-- @include read_sale
-- Return what read_sale returns, or nil also if a key has a wrong type.
--
-- Scripts that read a whole ledger take its contents as their first six keys:
--   KEYS[1] buyers   hash  <user>:<unit> -> order id; and `state`: the sale in one text (write_state)
--   KEYS[2] pending  zset  <order id>:<user>:<unit> by the time it was accepted
--   KEYS[3] ended    hash  order id -> <user>:<reason>
--   KEYS[4] tries    hash  order id -> attempts to write it
--   KEYS[5] barred   hash  user -> the ended order that bars another, where the sale says so
--   KEYS[6] waiting  zset  <order id>:<user> by the time of joining the waiting list
local function read_ledger(user_id)
  if not (has_type(KEYS[2], 'zset') and others_are_whole()) then return nil end
  return read_sale(user_id)
end
