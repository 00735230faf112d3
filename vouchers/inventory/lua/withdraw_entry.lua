-- withdraw_entry: take a buyer's entry out of a draw that takes entries. Safe to repeat.
--
-- KEYS[1…6]  the contents of the ledger (read_ledger)
-- KEYS[7]    entries  hash  (read_entries)  KEYS[8]  fresh  zset  (log_entry)
-- ARGV[1]  order id  ARGV[2] user id
-- ARGV[3]  milliseconds to keep `ended` after the sale's end
--
-- Returns a code
--   WITHDRAWN   the entry is not in the draw any more, or was withdrawn before
--   ENDED       the draw takes no entries any more, and keeps those that it has
--   UNKNOWN     the buyer has no such entry, or the sale is no draw
--   NOT_LOADED  the ledger is not loaded
-- @include now_in_ms
-- @include read_ledger
-- @include read_entries
-- @include log_entry
-- @include unset_plain

local order_id, user_id = ARGV[1], ARGV[2]
local sale = read_ledger()
if not sale then return 'NOT_LOADED' end
if string.sub(sale.mode_terms, -1) ~= 'd' then return 'UNKNOWN' end
if redis.call('HGET', KEYS[3], order_id) == user_id .. ':withdrawn' then return 'WITHDRAWN' end
local now_ms = now_in_ms()
-- First, because the entries of an old draw have expired: read_entries would take that for a loss.
if now_ms >= tonumber(sale.ends_at_ms) then return 'ENDED' end
local entry, phase = read_entries(KEYS[1], KEYS[7], sale.build, user_id)
if not phase then return 'NOT_LOADED' end
if not entry or string.match(entry, '^(%d+):') ~= order_id then return 'UNKNOWN' end
if phase ~= 'open' then return 'ENDED' end
unset_plain(sale)
log_entry(KEYS[7], KEYS[8], order_id, user_id, integer(now_ms), 'W')
redis.call('HDEL', KEYS[7], user_id)
redis.call('HSET', KEYS[3], order_id, user_id .. ':withdrawn')
local keep_ms = sale.ends_at_ms - now_ms + tonumber(ARGV[3])
if redis.call('PTTL', KEYS[3]) < keep_ms then redis.call('PEXPIRE', KEYS[3], integer(keep_ms)) end
return 'WITHDRAWN'
