-- Write the sale's state, all strings: one text, because reading one field costs less than ten.
-- `sold_out_at_ms`, the time since which nothing is left, is '' while units are left.
local function write_state(sale)
  redis.call('HSET', KEYS[1], 'state', table.concat({sale.sentinel, sale.total, sale.begins_at_ms,
    sale.ends_at_ms, sale.limit, sale.paused, sale.rebuy, sale.loaded_at_ms, sale.batch,
    sale.sold_out_at_ms}, ' '))
end
