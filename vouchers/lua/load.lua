-- load: install a ledger that was built in side keys, unless one stands already.
--
-- The caller holds the sale's row FOR UPDATE from reading the orders until this returns, so no
-- order can be committed in between.
--
-- KEYS[1]  sale  KEYS[2] buyers  KEYS[3] pending  KEYS[4] ended  KEYS[5] tries  KEYS[6] kick
-- KEYS[7]  side buyers    (with its sentinel, so it always exists)
-- KEYS[8]  side pending   (may be missing: nothing pending)
-- KEYS[9]  side ended     (may be missing: nothing ended)
-- KEYS[10] trying
-- ARGV[1]  epoch  ARGV[2] total  ARGV[3] begins_at_ms  ARGV[4] ends_at_ms
-- ARGV[5]  limit  ARGV[6] paused (0 or 1)  ARGV[7] milliseconds to keep `ended` after the end
-- ARGV[8]  number of the last batch that the row has seen  ARGV[9] run id of this server
-- ARGV[10] how many fields side buyers has, its sentinel included  ARGV[11] entries of side pending
-- ARGV[12] fields of side ended
--
-- Returns LOADED, ALREADY_LOADED, or SIDE_KEYS_LOST (all or part of them: build again).

if read_ledger(KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]) then
  redis.call('UNLINK', KEYS[7], KEYS[8], KEYS[9])
  return 'ALREADY_LOADED'
end
-- A server that was restarted among the writes may have only the last of them.
if redis.call('HLEN', KEYS[7]) ~= tonumber(ARGV[10]) or redis.call('ZCARD', KEYS[8]) ~= tonumber(ARGV[11])
    or redis.call('HLEN', KEYS[9]) ~= tonumber(ARGV[12]) then
  redis.call('UNLINK', KEYS[7], KEYS[8], KEYS[9])
  return 'SIDE_KEYS_LOST'
end

local now_ms = now_in_ms()
redis.call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[10])
redis.call('RENAME', KEYS[7], KEYS[2])
redis.call('PERSIST', KEYS[2])
if redis.call('EXISTS', KEYS[8]) == 1 then
  redis.call('RENAME', KEYS[8], KEYS[3])
  redis.call('PERSIST', KEYS[3])
end
if redis.call('EXISTS', KEYS[9]) == 1 then
  redis.call('RENAME', KEYS[9], KEYS[4])
  local keep_ms = math.max(tonumber(ARGV[4]), now_ms) + tonumber(ARGV[7]) - now_ms
  redis.call('PEXPIRE', KEYS[4], integer(keep_ms))
end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'total', ARGV[2],
  'begins_at_ms', ARGV[3], 'ends_at_ms', ARGV[4], 'limit', ARGV[5], 'paused', ARGV[6],
  'loaded_at_ms', integer(now_ms), 'batch', ARGV[8], 'run_id', ARGV[9])
return 'LOADED'
