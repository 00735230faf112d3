-- `sale`: the words of state_words in one table.
local sale = {
  build = build, identity = identity, total = total, begins_at_ms = begins_at_ms,
  ends_at_ms = ends_at_ms, limit = limit, paused = paused, rebuy = rebuy, plain = plain,
  loaded_at_ms = loaded_at_ms, batch = batch, sold_out_at_ms = sold_out_at_ms,
  mode_terms = mode_terms, per_address = per_address,
}
