-- close_entries: let a draw whose time is over take no entry any more, whatever the clock does.
--
-- The caller holds the sale's row FOR UPDATE, so that no other ledger is loaded until it has read them.
--
-- KEYS[1]  buyers  KEYS[2]  entries  hash  (read_entries)
-- ARGV[1]  identity of the sale
--
-- Returns a code
--   CLOSED      no entry is accepted from now on
--   OPEN        the draw takes entries until its end
--   NOT_LOADED  the ledger is not loaded, or it is that of another sale or of no draw
-- @include now_in_ms
-- @include read_sale
-- @include read_entries

local sale = read_sale()
if not sale or sale.identity ~= ARGV[1] or string.sub(sale.mode_terms, -1) ~= 'd' then return 'NOT_LOADED' end
local _, phase = read_entries(KEYS[1], KEYS[2], sale.build, '')
if not phase then return 'NOT_LOADED' end
if phase ~= 'open' then return 'CLOSED' end
if now_in_ms() < tonumber(sale.ends_at_ms) then return 'OPEN' end
redis.call('HSET', KEYS[2], 'phase', 'closed')
return 'CLOSED'
