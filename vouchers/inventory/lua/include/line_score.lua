-- @include line_scores
-- Return the score of a buyer who waits for so many units: see line_scores.
local function line_score(joined_ms, units, all)
  if units < 2 then return integer(joined_ms) end
  if all then return integer(units * ALL_OF + joined_ms) end
  return string.format('%.5f', joined_ms + (units - 1) / 32)
end
