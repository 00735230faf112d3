-- @include read_units
-- @include has_type
-- Return the sale's state as strings, or nil if the ledger is not loaded or not whole. With a user
-- id, return also what this buyer's units hold (read_units).
--
-- A key of a wrong type counts as missing, and so does a state with a word that is no number. Lost
-- buyers would look like an unsold sale: the sentinel in `buyers` must match the epoch and the
-- identity of the sale (Note [Epoch and sentinel] in rebuild.py).
--
-- Each request of a crowd runs this, so reads that are needed anyway tell a wrong type, by their
-- error; only `pending` is left to read_ledger. The last four keys seldom exist before the last
-- unit is gone: one command asks for all of them, and if it finds none, the sale is `plain`.
local STATE = '^(%d+:(%d+)) (%d+) (%d+) (%d+) (%d+) ([01]) ([01]) (%d+) (%d+) (%d*)$'

local function read_sale(user_id)
  local state = redis.pcall('HGET', KEYS[1], 'state')
  if type(state) ~= 'string' then return nil end
  local sentinel, identity, total, begins_at_ms, ends_at_ms, limit, paused, rebuy, loaded_at_ms,
    batch, sold_out_at_ms = string.match(state, STATE)
  if not sentinel then return nil end
  local units = read_units(user_id, limit)
  if units[1] ~= sentinel then return nil end
  local plain = redis.call('EXISTS', KEYS[4], KEYS[5], KEYS[6], KEYS[7]) == 0
  if not plain and not (has_type(KEYS[4], 'hash') and has_type(KEYS[5], 'hash')
      and has_type(KEYS[6], 'hash') and has_type(KEYS[7], 'zset')) then
    return nil
  end
  return {
    sentinel = sentinel, identity = identity, total = total, begins_at_ms = begins_at_ms,
    ends_at_ms = ends_at_ms, limit = limit, paused = paused, rebuy = rebuy,
    loaded_at_ms = loaded_at_ms, batch = batch, sold_out_at_ms = sold_out_at_ms, plain = plain,
  }, units
end
