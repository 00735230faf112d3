-- @include integer
-- The score of a waiting buyer says since when they wait, and what for:
--
--   as many units as come   <joined_ms> + (units - 1) / 32
--   all units or none       units * 10^13 + <joined_ms>
--
-- So a plain time is one unit, as the release before writes it; and the buyers who want all of a number
-- have a range of their own, so that nobody who cannot be served yet has to be passed over.
local ALL_OF, MOST_WANTED = 10000000000000, 20

-- Return since when a buyer waits, how many units they want, and whether all of them or none.
local function read_line_score(score)
  local all_of, joined_ms = math.floor(score / ALL_OF), score % ALL_OF
  if all_of > 1 then return joined_ms, all_of, true end
  return math.floor(joined_ms), math.floor(joined_ms % 1 * 32) + 1, false
end

-- Return the range of the buyers who want all of so many units; for 1, of those who take what comes.
local function line_range(units)
  return units > 1 and integer(units * ALL_OF) or '-inf',
    units < MOST_WANTED and '(' .. integer((units + 1) * ALL_OF) or '+inf'
end
