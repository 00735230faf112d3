-- FORMAT is how this release writes a ledger; the `sale` hash has the format of the one that is there.
-- Its field is one that earlier releases do not read. A newer ledger counts as not loaded: whoever would
-- load it learns why (check_format), and no script changes it.
local FORMAT = 1

-- Return the format of the ledger if it is newer, else nil; KEYS[n] is the `sale` hash.
local function newer_format(key)
  local found = redis.pcall('HGET', key, 'format') -- a key of a wrong type has none
  return type(found) == 'string' and (tonumber(found) or 0) > FORMAT and found or nil
end
