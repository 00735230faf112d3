-- move_aside: move each key aside that is not of its type. Safe to repeat.
--
-- KEYS  keys
-- ARGV  the type that each must have, as TYPE names it
--
-- Returns how many were moved aside.

-- @include move_aside

local moved = 0
for i, key in ipairs(KEYS) do
  moved = moved + move_aside(key, ARGV[i])
end
return moved
