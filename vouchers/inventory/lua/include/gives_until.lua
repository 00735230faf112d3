-- Return the time until which units that come back go to the waiting list: after a draw, that is later
-- than the end of the sale. The terms of a draw are <time>d, in the place of those of a waiting room.
local function gives_until(sale)
  return tonumber(string.match(sale.mode_terms, '^(%d+)d$') or sale.ends_at_ms)
end
