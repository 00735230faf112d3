-- write_terms: copy a sale's terms from its row, which the caller holds FOR UPDATE.
--
-- Units that become free go to the waiting list.
--
-- KEYS[1…6] the contents of the ledger (read_ledger)
-- KEYS[7]  price  string  in cents  KEYS[8] sale (newer_format)
-- ARGV[1]  total  ARGV[2] begins_at_ms  ARGV[3] ends_at_ms  ARGV[4] limit  ARGV[5] paused (0 or 1)
-- ARGV[6]  rebuy (0 or 1)
-- ARGV[7]  identity of the sale: the ledger of another sale counts as not loaded
-- ARGV[8]  terms of the waiting room, or '' (visit_room)
-- ARGV[9]  1: refuse a total below the units taken, pending included; 0: the row has the last word
-- ARGV[10] the sale's own limit of new orders per address, or '' (reserve.lua)
-- ARGV[11] price in cents, or '' to leave it as it is
--
-- Returns {code, taken}
--   WRITTEN      the terms are written
--   BELOW_TAKEN  nothing was written; `taken` units are reserved or ordered
--   NOT_LOADED   nothing was written; the ledger is not loaded
-- @include read_ledger
-- @include write_state
-- @include now_in_ms
-- @include give_units
-- @include newer_format

local sale = read_ledger()
if not sale or sale.identity ~= ARGV[7] or newer_format(KEYS[8]) then return {'NOT_LOADED', 0} end
local taken = redis.call('HLEN', KEYS[1]) - 1
if ARGV[9] == '1' and tonumber(ARGV[1]) < taken then return {'BELOW_TAKEN', taken} end
-- The time at which the last unit went holds for one total only.
if sale.total ~= ARGV[1] then sale.sold_out_at_ms = '' end
sale.total, sale.begins_at_ms, sale.ends_at_ms = ARGV[1], ARGV[2], ARGV[3]
sale.limit, sale.paused, sale.rebuy, sale.mode_terms = ARGV[4], ARGV[5], ARGV[6], ARGV[8]
sale.per_address = ARGV[10]
write_state(sale)
if ARGV[11] ~= '' then redis.call('SET', KEYS[7], ARGV[11]) end
give_units(sale, now_in_ms())
return {'WRITTEN', taken}
