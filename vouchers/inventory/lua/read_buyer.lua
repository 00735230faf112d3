-- read_buyer: read what one buyer has in a loaded sale, at one moment. Writes nothing, unless the
-- sale has a waiting room: there a buyer who may buy joins the line.
--
-- KEYS[1…6]   the contents of the ledger (read_ledger)  KEYS[7…8] the copies of rows
-- KEYS[9…10]  room and visits (visit_room)  KEYS[11] entries (read_entries)
-- ARGV[1]     user id  ARGV[2] the buyer's draw  ARGV[3] ms that a place is kept after its turn
-- ARGV[4]     1: join the line again after an expired place
-- ARGV[5]     a signed place, or ''  ARGV[6] opening of the room that this place and the next two are of
-- ARGV[7]     the last number in line that the caller knows of  ARGV[8] the last one before the start, or ''
-- ARGV[9]     the time by a clock that was not set: no place expires because Redis's clock was
--
-- Returns {''} if the ledger is not loaded or not whole, else
--   {now_ms limit ends_at_ms identity, the ended order that bars another or 0, waiting, and with a
--   waiting room what visit_room returns, or in a draw its terms and the buyer's entry or 0: in one text},
--   followed for each unit held by its unit, its order id, its queue position from 1, or 0 if it
--   is not pending, and the copy of its row or ''
-- @include now_in_ms
-- @include integer
-- @include read_sale
-- @include others_are_whole
-- @include barring_order
-- @include visit_room

local user_id = ARGV[1]
local sale, units = read_sale(user_id)
if not sale or sale.plain == '0' and not others_are_whole() then return {''} end
local barred_by, waiting = '0', '0'
if sale.plain == '0' then
  barred_by = barring_order(sale, user_id) or '0'
  waiting = integer(redis.call('ZCARD', KEYS[6]))
end
local now_ms = now_in_ms()
local reply = {
  integer(now_ms) .. ' ' .. sale.limit .. ' ' .. sale.ends_at_ms .. ' ' .. sale.identity .. ' '
    .. barred_by .. ' ' .. waiting,
}
for unit = 1, tonumber(sale.limit) do
  local order_id = digits_or_nil(units[unit])
  if order_id then
    local member = order_id .. ':' .. user_id .. ':' .. unit
    local ahead = redis.pcall('ZRANK', KEYS[2], member)
    if type(ahead) == 'table' then return {''} end -- a wrong type
    local copy = ''
    for i = 7, 8 do
      local row = redis.pcall('HGET', KEYS[i], order_id)
      if type(row) == 'string' then copy = row end -- an error (wrong type) is a table
    end
    reply[#reply + 1] = integer(unit)
    reply[#reply + 1] = order_id
    reply[#reply + 1] = integer(ahead and ahead + 1 or 0)
    reply[#reply + 1] = copy
  end
end
if string.sub(sale.mode_terms, -1) == 'd' then
  local entry = redis.pcall('HMGET', KEYS[11], user_id)[1] -- an error (wrong type) has no fields
  reply[1] = reply[1] .. ' ' .. sale.mode_terms .. ' ' .. (entry and string.match(entry, '^(%d+):') or '0')
elseif sale.mode_terms ~= '' and now_ms < tonumber(sale.ends_at_ms) then
  local may_join = (#reply - 1) / 4 < tonumber(sale.limit) and barred_by == '0'
  reply[1] = reply[1] .. ' ' .. visit_room(sale.mode_terms, now_ms, sale.ends_at_ms, {
    user_id = user_id, draw = ARGV[2], kept_ms = ARGV[3], steady_ms = ARGV[9], again = ARGV[4] == '1',
    place = ARGV[5], opened = ARGV[6], tail = ARGV[7], early = ARGV[8], may_join = may_join,
  })
end
return reply
