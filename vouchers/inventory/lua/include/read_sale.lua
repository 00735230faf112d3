-- @include read_units
-- Return the sale's state (state_words) as a table, or nil if the ledger is not loaded. With a user
-- id, return also the order ids of this buyer's units (read_units).
local function read_sale(user_id)
  user_id = user_id or ''
  -- @include state_words
  if not build then return nil end
  -- @include sale_table
  return sale, user_id ~= '' and read_units(user_id, limit, first)
end
