-- What the scripts share; put in front of each of them by the loader.
--
-- Those that take the contents of a ledger take them as their first seven keys:
--   KEYS[1] sale  KEYS[2] buyers  KEYS[3] pending  KEYS[4] ended  KEYS[5] tries
--   KEYS[6] barred   hash  user -> order id that ended: may not buy again where the sale says so
--   KEYS[7] waiting  zset  <order id>:<user> by the time of joining the waiting list

local function now_in_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function integer(number)
  return string.format('%.0f', number)
end

local function is_a(key, wanted)
  local found = redis.call('TYPE', key)['ok']
  return found == wanted or found == 'none'
end

-- Returns nil where the ledger is not loaded or not whole, else the sale's figures as strings. A key
-- of a wrong type is as good as none, and lost buyers would look like an unsold sale: hence the
-- sentinel.
local function read_ledger()
  if not (is_a(KEYS[1], 'hash') and is_a(KEYS[2], 'hash') and is_a(KEYS[3], 'zset')
      and is_a(KEYS[4], 'hash') and is_a(KEYS[5], 'hash') and is_a(KEYS[6], 'hash')
      and is_a(KEYS[7], 'zset')) then
    return nil
  end
  local names = {'epoch', 'total', 'begins_at_ms', 'ends_at_ms', 'limit', 'paused', 'rebuy',
    'loaded_at_ms'}
  local values = redis.call('HMGET', KEYS[1], unpack(names))
  local figures = {}
  for i, name in ipairs(names) do
    if not values[i] then return nil end
    figures[name] = values[i]
  end
  if redis.call('HGET', KEYS[2], 'epoch') ~= figures.epoch then return nil end
  return figures
end

-- What a buyer holds: the first unit that is free and an order id that is held, nil for none.
local function units_of(sale, user_id)
  local fields = {}
  for unit = 1, tonumber(sale.limit) do
    fields[unit] = user_id .. ':' .. unit
  end
  local held = redis.call('HMGET', KEYS[2], unpack(fields))
  local free_unit, held_id
  for unit = 1, #fields do
    if held[unit] then
      held_id = held_id or held[unit]
    else
      free_unit = free_unit or unit
    end
  end
  return free_unit, held_id, held
end

-- The ended order for which a buyer may not buy again, or nil.
local function barred_for(sale, user_id)
  if sale.rebuy == '1' then return nil end
  return redis.call('HGET', KEYS[6], user_id) or nil
end

local function free_units(sale)
  return tonumber(sale.total) - (redis.call('HLEN', KEYS[2]) - 1)
end

-- Accept a buyer: the promise to write this order, in the same breath as the unit.
local function take_unit(sale, order_id, user_id, unit, now_ms)
  local field = user_id .. ':' .. unit
  redis.call('HSET', KEYS[2], field, order_id)
  redis.call('ZADD', KEYS[3], integer(now_ms), order_id .. ':' .. field)
  redis.call('ZREM', KEYS[7], order_id .. ':' .. user_id)
  -- Whoever comes too late is told since when nothing is left.
  if free_units(sale) <= 0 then redis.call('HSET', KEYS[1], 'sold_out_at_ms', integer(now_ms)) end
end

local GIVEN_AT_ONCE = 1000

-- Give free units to those who wait, first come, first served; one who can have none drops out.
local function give_units(sale, now_ms)
  if sale.paused ~= '0' or now_ms < tonumber(sale.begins_at_ms)
      or now_ms >= tonumber(sale.ends_at_ms) then
    return
  end
  local free = math.min(free_units(sale), GIVEN_AT_ONCE)
  while free > 0 do
    local first = redis.call('ZPOPMIN', KEYS[7])[1]
    if not first then return end
    local order_id, user_id = string.match(first, '^(%d+):(%d+)$')
    local unit = user_id and not barred_for(sale, user_id) and units_of(sale, user_id)
    if unit then
      take_unit(sale, order_id, user_id, unit, now_ms)
      free = free - 1
    end
  end
end

-- So many arguments at once are well within what Lua takes.
local AT_ONCE = 500

-- Keep copies of what rows say, for those who ask for receipts: each where there is none and nobody is
-- changing the row (forget_rows). ARGV has the order ids from `id_at` on, and from `row_at` on what
-- their rows say, or '' where no copy is to be kept.
--
-- There are two hashes, order id -> copy, and a new copy goes to the one whose turn it is. A hash is
-- begun in its turn and ends as a whole with the other's next one, which is when its own next one
-- begins: so it is empty then, and no copy is told for longer than two turns.
local function keep_copies(copies, changing, turn_ms, id_at, row_at, count)
  if not (is_a(copies[1], 'hash') and is_a(copies[2], 'hash') and is_a(changing, 'zset')) then
    return
  end
  local turn = math.floor(now_in_ms() / turn_ms)
  local current = copies[turn % 2 + 1]
  for from = 0, count - 1, AT_ONCE do
    local many = math.min(AT_ONCE, count - from)
    local first, last = id_at + from, id_at + from + many - 1
    local of_even = redis.call('HMGET', copies[1], unpack(ARGV, first, last))
    local of_odd = redis.call('HMGET', copies[2], unpack(ARGV, first, last))
    local marks = redis.call('ZMSCORE', changing, unpack(ARGV, first, last))
    local new = {}
    for i = 1, many do
      local row = ARGV[row_at + from + i - 1]
      if row ~= '' and not (of_even[i] or of_odd[i] or marks[i]) then
        new[#new + 1] = ARGV[first + i - 1]
        new[#new + 1] = row
      end
    end
    if #new > 0 then redis.call('HSET', current, unpack(new)) end
  end
  -- Only a hash that was begun just now: whatever is in it would live longer than promised.
  if redis.call('PTTL', current) == -1 then
    redis.call('PEXPIREAT', current, integer((turn + 2) * turn_ms))
  end
end
