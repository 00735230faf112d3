-- move_aside: rename a key of another type than wanted, for a week, so that it is in nobody's way.
-- Returns 1 if it was one, else 0.
local function move_aside(key, wanted)
  local type = redis.call('TYPE', key)['ok']
  if type == 'none' or type == wanted then return 0 end
  local aside = key .. ':aside'
  redis.call('RENAME', key, aside)
  redis.call('PEXPIRE', aside, 604800000)
  return 1
end
