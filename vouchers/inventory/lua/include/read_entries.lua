-- Return a user's entry in a draw and its phase, or nil if the entries are not whole.
--
-- They name the ledger that they are part of. If they do not name this one, they were lost: this takes
-- the ledger its state, so that it is built again, with the entries that are rows.
--
--   entries  hash  <user> -> <order id>:<time in ms>; `build` as in the state; `phase`: open, closed or
--                  drawn; `seq`: how often something was added to the log `fresh`
local function read_entries(buyers, entries, build, user_id)
  local held = redis.pcall('HMGET', entries, user_id, 'build', 'phase')
  if held[2] == build then return held[1], held[3] end -- an error (wrong type) has no fields
  redis.call('HDEL', buyers, 'state')
  return nil
end
