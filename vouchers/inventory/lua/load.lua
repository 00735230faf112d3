-- load: install a ledger that was built in side keys, unless one is loaded already.
--
-- The caller holds the sale's row FOR UPDATE from reading the orders until this returns, so no
-- order is committed in between.
--
-- KEYS[1…6]    the contents of the ledger (read_ledger)
-- KEYS[7]      kick  KEYS[8] trying
-- KEYS[9]      sale  hash  `identity` of the sale; `run_id` of the server on which it was built; `format`
-- KEYS[10]     room  hash  the places in the waiting room (visit_room)
-- KEYS[11…15]  side buyers, pending, ended, barred, waiting; an empty one is missing
-- KEYS[16]     price  string  in cents
-- ARGV[1]      epoch  ARGV[2] total  ARGV[3] begins_at_ms  ARGV[4] ends_at_ms
-- ARGV[5]      limit  ARGV[6] paused (0 or 1)  ARGV[7] rebuy (0 or 1)
-- ARGV[8]      identity of the sale  ARGV[9] terms of the waiting room, or '' (visit_room)
-- ARGV[10]     milliseconds to keep `ended` after the sale's end
-- ARGV[11]     number of the last batch that the row has stored  ARGV[12] run id of this server
-- ARGV[13]     opening of the waiting room  ARGV[14] the last number of its line, as stored
-- ARGV[15]     the last number given before the start, as stored, or ''
-- ARGV[16…20]  the size of each side key
-- ARGV[21]     the sale's own limit of new orders per address, or '' (reserve.lua)
-- ARGV[22]     price in cents
--
-- Returns a code
--   LOADED          the side keys are the ledger now
--   ALREADY_LOADED  another ledger is loaded; the side keys are deleted
--   SIDE_KEYS_LOST  side keys were lost, or a newer release was faster; the rest are deleted: build again
-- @include read_ledger
-- @include now_in_ms
-- @include integer
-- @include write_state
-- @include give_units
-- @include restore_line
-- @include newer_format

local SIDE = {KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]}
local function size(key)
  return redis.call(redis.call('TYPE', key)['ok'] == 'zset' and 'ZCARD' or 'HLEN', key)
end

if newer_format(KEYS[9]) then
  redis.call('UNLINK', unpack(SIDE))
  return 'SIDE_KEYS_LOST'
end
if read_ledger() then
  redis.call('UNLINK', unpack(SIDE))
  return 'ALREADY_LOADED'
end
-- A server that was restarted during the build may have only the later writes.
for i, key in ipairs(SIDE) do
  if size(key) ~= tonumber(ARGV[15 + i]) then
    redis.call('UNLINK', unpack(SIDE))
    return 'SIDE_KEYS_LOST'
  end
end

local now_ms = now_in_ms()
redis.call('UNLINK', unpack(KEYS, 1, 9))
local plain = '1'
local target = {KEYS[1], KEYS[2], KEYS[3], KEYS[5], KEYS[6]}
for i, key in ipairs(SIDE) do
  if redis.call('EXISTS', key) == 1 then
    redis.call('RENAME', key, target[i])
    redis.call('PERSIST', target[i])
    if i > 2 then plain = '0' end -- ended, barred or waiting
  end
end
local keep_ms = math.max(tonumber(ARGV[4]), now_ms) + tonumber(ARGV[10]) - now_ms
redis.call('PEXPIRE', KEYS[3], integer(keep_ms))
redis.call('HSET', KEYS[9], 'identity', ARGV[8], 'run_id', ARGV[12], 'format', FORMAT)
write_state({
  build = ARGV[1] .. ':' .. ARGV[8], total = ARGV[2], begins_at_ms = ARGV[3],
  ends_at_ms = ARGV[4], limit = ARGV[5], paused = ARGV[6], rebuy = ARGV[7], plain = plain,
  loaded_at_ms = integer(now_ms), batch = ARGV[11], sold_out_at_ms = '',
  mode_terms = ARGV[9], per_address = ARGV[21],
})
redis.call('SET', KEYS[16], ARGV[22])
restore_line(ARGV[13], ARGV[14], ARGV[15], ARGV[4])
give_units(read_ledger(), now_ms)
return 'LOADED'
