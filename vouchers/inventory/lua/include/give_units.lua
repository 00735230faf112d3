-- @include read_units
-- @include spare_units
-- @include barring_order
-- @include free_units
-- @include take_unit
-- @include note_last_unit
-- @include integer
-- @include gives_until
-- @include line_score
-- @include id_after
-- One call gives at most about this many units, so that no script runs for long.
local MAX_UNITS_GIVEN = 1000

-- Give free units to the waiting list, while the sale is open. Return how many, and whether nobody on it
-- can take those that are left.
--
-- Buyers are served in the order of joining. One who wants all of more units than are free is passed
-- over and keeps the place. What a buyer gets is a purchase; the rest of what was wanted keeps the same
-- place, under the next block of ids. An entry whose buyer may have no unit is dropped.
local function give_units(sale, now_ms)
  if sale.paused == '1' or now_ms < tonumber(sale.begins_at_ms)
      or now_ms >= gives_until(sale) then
    return 0, false
  end
  local free, given, heads = free_units(sale), 0, {}
  local last = math.max(free - MAX_UNITS_GIVEN, 0)
  local function read_head(units)
    local from, to = line_range(units)
    local member, score = unpack(redis.call('ZRANGEBYSCORE', KEYS[6], from, to, 'WITHSCORES', 'LIMIT', 0, 1))
    heads[units] = member and {member, read_line_score(tonumber(score))}
  end
  for units = 1, math.min(free, MOST_WANTED) do read_head(units) end
  while free > last do
    local first
    for units = 1, math.min(free, MOST_WANTED) do
      local head = heads[units]
      if head and not (first and heads[first][2] <= head[2]) then first = units end
    end
    if not first then return given, true end
    local member, joined_ms, wanted, all = unpack(heads[first])
    local order_id, user_id = string.match(member, '^(%d+):(%d+)$')
    local spare = user_id and not barring_order(sale, user_id)
      and spare_units(read_units(user_id, sale.limit)) or {}
    local count = math.min(wanted, #spare, free)
    if all and count < wanted then count = 0 end
    redis.call('ZREM', KEYS[6], member)
    for i = 1, count do
      local id = i == 1 and order_id or id_after(order_id, (all and 32 or 0) + i - 1)
      take_unit(id, user_id, spare[i], integer(now_ms))
    end
    if count == free then
      note_last_unit(sale, integer(now_ms))
      if count < math.min(wanted, #spare) then
        local rest = line_score(joined_ms, wanted - count, false)
        redis.call('ZADD', KEYS[6], rest, id_after(order_id, 64) .. ':' .. user_id)
      end
    end
    free, given = free - count, given + count
    read_head(first)
  end
  return given, false
end
