-- @include write_state
-- Record when the last unit went, for later buyers.
local function note_last_unit(sale, now)
  sale.sold_out_at_ms = now
  write_state(sale)
end
