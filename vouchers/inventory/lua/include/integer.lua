-- Return a whole number as digits: Lua would write a large one with an exponent.
local function integer(number)
  return string.format('%d', number)
end
