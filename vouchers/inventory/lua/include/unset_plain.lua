-- @include write_state
-- Let later calls look into `ended`, `barred` and `waiting`, before anything is written there.
local function unset_plain(sale)
  if sale.plain == '0' then return end
  sale.plain = '0'
  write_state(sale)
end
