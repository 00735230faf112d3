-- Return an id or a number as it is stored; nil for anything else, which comes from a mistyped command.
local function digits_or_nil(value)
  return value and string.match(value, '^%d+$')
end
