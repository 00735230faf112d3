-- Write the sale's state, all strings: one text, because reading one field costs less than ten.
local function write_state(sale)
  redis.call('HSET', KEYS[1], 'state', table.concat({sale.build, sale.total, sale.begins_at_ms,
    sale.ends_at_ms, sale.limit, sale.paused, sale.rebuy, sale.plain, sale.loaded_at_ms, sale.batch,
    sale.sold_out_at_ms}, ' '))
end
