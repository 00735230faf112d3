-- cache_row: cache what an order's row says, unless it has a copy or is changing. Safe to repeat.
--
-- KEYS[1]  copies    hash  order id -> what its row says  KEYS[2] the other one
-- KEYS[3]  changing  zset  orders whose rows are changing
-- ARGV[1]  how long each hash of copies takes new ones, in ms
-- ARGV[2]  order id  ARGV[3] what its row says
--
-- Returns nothing.
-- @include cache_rows

cache_rows({KEYS[1], KEYS[2]}, KEYS[3], ARGV[1], 2, 3, 1)
