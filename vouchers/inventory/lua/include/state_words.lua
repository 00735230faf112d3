-- The words of the sale's state as local strings, and `first`: what the first unit of `user_id` holds.
--
-- Without a `build` the ledger is not loaded: a key of a wrong type counts as missing, and so does a
-- state with a word that is no number. One command reads both, and its error tells a wrong type. The
-- state is in `buyers`, because lost buyers would look like an unsold sale (Note [Epoch and state] in
-- rebuild.py).
--
--   build           <epoch>:<identity of the sale>
--   plain           1: nothing has been in `ended`, `barred` or `waiting` since it was built
--   sold_out_at_ms  the time since which nothing is left, '' while units are left
--   mode_terms      the terms of the waiting room (visit_room) or of the draw (gives_until), '' without either
--   per_address     the sale's own limit of new orders per address, '' without one (reserve.lua)
local sale_fields = redis.pcall('HMGET', KEYS[1], 'state', user_id .. ':1')
local build, identity, total, begins_at_ms, ends_at_ms, limit, paused, rebuy, plain, loaded_at_ms,
  batch, sold_out_at_ms, mode_terms, per_address = string.match(sale_fields[1] or '',
    -- [0-9] matches faster than %d, and one piece than two that are joined.
    -- luacheck: ignore 631
    '^([0-9]+:([0-9]+)) ([0-9]+) ([0-9]+) ([0-9]+) ([0-9]+) ([01]) ([01]) ([01]) ([0-9]+) ([0-9]+) ([0-9]*) ?([0-9:]*[asd]?)%+?([0-9]*)$')
local first = sale_fields[2]
