-- @include integer
-- @include drop_wrong_type
-- @include digits_or_nil
-- Return a buyer's place in the waiting room as words; whoever has none joins the line.
--
-- Note [Places in line] in waiting_room.py. The terms of a room are
-- <opened_ms>:<rate>:<base>:<since_ms>:<a: in order of arrival, s: early visitors are shuffled>.
--
-- KEYS[9]   room    hash  `opened`; `tail`, the last number given; `early`, the last one given before
--                         the start; <user> -> <number given>:<joined_ms>:<let in at, in ms, or 0>
-- KEYS[10]  visits  hash  <user> -> the same, until a row has it
-- visitor   user_id; draw: a number below 2^32; may_join; again: after an expired place;
--           steady_ms: the time by a clock that was not set; kept_ms: how long a turn lasts;
--           place: a signed <number given>:<joined_ms>, or ''; opened, tail, early: of an earlier
--           reply or place, in case Redis has lost its own
--
-- Returns: the terms, number given, joined_ms, number in line, IN, WAITING, EXPIRED or NONE, tail, early
local function visit_room(room, now_ms, ends_at_ms, visitor)
  local opened, rate, base, since, order = string.match(room, '^(%d+):(%d+):(%d+):(%d+):([as])$')
  local function passed(at_ms) -- the highest number whose turn it was by then
    return base + math.floor(rate * math.max(0, at_ms - since) / 1000)
  end
  local has_begun = now_ms >= tonumber(since)
  local head = passed(now_ms) + (has_begun and rate or 0)
  local expires_at_ms = integer(ends_at_ms + 3600000)
  drop_wrong_type(KEYS[9], 'hash')
  local kept = redis.call('HMGET', KEYS[9], 'opened', 'tail', 'early', visitor.user_id)
  if kept[1] ~= opened then -- another opening of the room, or a lost line
    kept = {}
    redis.call('UNLINK', KEYS[9])
    redis.call('HSET', KEYS[9], 'opened', opened)
    redis.call('PEXPIREAT', KEYS[9], expires_at_ms)
  end
  local known = visitor.opened == opened and visitor or {tail = 0, early = '', place = ''}
  local tail = math.max(digits_or_nil(kept[2]) or 0, known.tail)
  local early, known_early = digits_or_nil(kept[3]), digits_or_nil(known.early)
  if order == 's' and has_begun then
    local drawn = early or known_early or integer(tail) -- the draw
    -- After a loss, fewer may be known to have come early; never more.
    if known_early and tonumber(drawn) < tonumber(known_early) then drawn = known_early end
    if drawn ~= early then redis.call('HSET', KEYS[9], 'early', drawn) end
    early = drawn
  end

  local function number_in_line(given)
    if order == 's' and early and tonumber(given) <= tonumber(early) then
      return 1 + math.floor(visitor.draw * early / 4294967296)
    end
    return tonumber(given)
  end
  local function has_expired(number)
    local was_set = now_ms - visitor.steady_ms > 2000
    local turn_until_ms = (was_set and visitor.steady_ms or now_ms) - visitor.kept_ms
    return turn_until_ms >= tonumber(since) and number <= passed(turn_until_ms)
  end
  local given, joined, let_in = string.match(kept[4] or '', '^(%d+):(%d+):(%d+)$')
  -- After a loss, the account may have joined from a browser that does not hold its signed place; or
  -- Redis has only an expired place, after which the account had joined again.
  local signed, signed_at = string.match(known.place, '^(%d+):(%d+)$')
  if signed and (not given or let_in == '0' and not has_expired(number_in_line(signed))
      and (tonumber(signed) < tonumber(given) or has_expired(number_in_line(given)))) then
    given, joined, let_in = signed, signed_at, '0'
  end
  local function join()
    tail = math.max(tail, passed(now_ms)) + 1
    given, joined, let_in = integer(tail), integer(now_ms), '0'
  end
  if not given then
    if not visitor.may_join then
      return table.concat({room, 0, 0, 0, 'NONE', integer(tail), early or ''}, ' ')
    end
    join()
  end
  local number, state = number_in_line(given), 'WAITING'
  if let_in == '0' and has_expired(number) then
    state = 'EXPIRED'
    if visitor.again then
      join()
      number, state = number_in_line(given), 'WAITING'
    end
  end
  if let_in ~= '0' then
    state = 'IN'
  elseif state == 'WAITING' and has_begun and number <= head then
    state, let_in = 'IN', integer(now_ms)
  end
  local value = given .. ':' .. joined .. ':' .. let_in
  if value ~= kept[4] then
    tail = math.max(tail, given)
    redis.call('HSET', KEYS[9], visitor.user_id, value, 'tail', integer(tail))
    redis.call('PEXPIREAT', KEYS[9], expires_at_ms)
    drop_wrong_type(KEYS[10], 'hash')
    redis.call('HSET', KEYS[10], visitor.user_id, opened .. ':' .. value)
    redis.call('PEXPIREAT', KEYS[10], expires_at_ms)
  end
  return table.concat({room, given, joined, integer(number), state, integer(tail), early or ''}, ' ')
end
