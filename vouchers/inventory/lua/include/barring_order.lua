-- Return the ended order that bars this buyer from another, or nil.
--
-- This is the rule "an ended order bars another" in the ledger. A sale with rebuy = 1 bars nobody.
local function barring_order(sale, user_id)
  if sale.rebuy == '1' then return nil end
  return redis.call('HGET', KEYS[6], user_id) or nil
end
