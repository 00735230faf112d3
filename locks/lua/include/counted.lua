local LIMIT = 9007199254740991 -- 2^53 - 1: a double does not hold the next integer

-- Return the number in a fencing counter; any other value counts as 0.
local function counted(value)
  local counter = tonumber(string.match(value or '', '^%d+$') or '0')
  return counter < LIMIT and counter or 0
end
