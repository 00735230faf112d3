-- Write the sale's state, all strings: one text, because reading one field costs less than ten.
--
-- Without a draw and a limit per address it is a text that the release before reads, too.
local function write_state(sale)
  local text = table.concat({sale.build, sale.total, sale.begins_at_ms, sale.ends_at_ms, sale.limit,
    sale.paused, sale.rebuy, sale.plain, sale.loaded_at_ms, sale.batch, sale.sold_out_at_ms}, ' ')
  local own_limit = sale.per_address ~= '' and '+' .. sale.per_address or ''
  if sale.mode_terms .. own_limit ~= '' then text = text .. ' ' .. sale.mode_terms .. own_limit end
  redis.call('HSET', KEYS[1], 'state', text)
end
