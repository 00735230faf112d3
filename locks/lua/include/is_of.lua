-- Return whether the lock with this value (take.lua) is the owner's.
local function is_of(value, owner)
  return value and string.sub(value, 1, #owner + 1) == owner .. ' '
end
