-- read_place: read a buyer's place on the waiting list. Writes nothing.
--
-- KEYS[1]  waiting  zset
-- ARGV     <order id>:<user>, for each order id under which the buyer may be waiting
--
-- Returns the position, from 1, and how many units are still wanted; or nothing.
-- @include place_in_line

for _, member in ipairs(ARGV) do
  local place, units = place_in_line(KEYS[1], member)
  if place then return {place, units} end
end
return {}
