-- unload: close a sale whose ledger is wrong. Buyers and pending entries stay for the next load.
--
-- KEYS[1]  buyers  hash  without its `state` the ledger is not loaded
-- KEYS[2]  sale    hash  (newer_format)
-- ARGV[1]  epoch of the wrong ledger, so that a rebuilt one stays; '' for any
--
-- Returns 1 if the sale is closed, 0 if another ledger is loaded by now, or a newer release's.
-- @include newer_format

local state = redis.pcall('HGET', KEYS[1], 'state')
if newer_format(KEYS[2]) then return 0 end
local epoch = type(state) == 'string' and string.match(state, '^%d+')
if ARGV[1] ~= '' and epoch and epoch ~= ARGV[1] then return 0 end
redis.pcall('HDEL', KEYS[1], 'state') -- a key of a wrong type has none
return 1
