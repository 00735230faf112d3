-- Return the units left; negative if more are taken than offered (Note [Derived stock]).
local function free_units(sale)
  return tonumber(sale.total) - (redis.call('HLEN', KEYS[1]) - 1)
end
