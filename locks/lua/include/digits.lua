-- Return an integer as text; tostring() would round a large one.
local function digits(number)
  return string.format('%.0f', number)
end
