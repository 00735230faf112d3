-- write_figures: copy a sale's figures from its row, which the caller holds FOR UPDATE.
--
-- KEYS[1]  sale  KEYS[2] buyers  KEYS[3] pending  KEYS[4] ended  KEYS[5] tries
-- ARGV[1]  total  ARGV[2] begins_at_ms  ARGV[3] ends_at_ms  ARGV[4] limit  ARGV[5] paused (0 or 1)
-- ARGV[6]  1: refuse a total below what is taken, pending included; 0: the row has the last word
--
-- Returns {code, taken}
--   WRITTEN      the figures stand
--   BELOW_TAKEN  nothing was written; `taken` units are reserved or ordered
--   NOT_LOADED   nothing was written

if not read_ledger(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) then return {'NOT_LOADED', 0} end
local taken = redis.call('HLEN', KEYS[2]) - 1
if ARGV[6] == '1' and tonumber(ARGV[1]) < taken then return {'BELOW_TAKEN', taken} end
redis.call('HSET', KEYS[1], 'total', ARGV[1], 'begins_at_ms', ARGV[2],
  'ends_at_ms', ARGV[3], 'limit', ARGV[4], 'paused', ARGV[5])
return {'WRITTEN', taken}
