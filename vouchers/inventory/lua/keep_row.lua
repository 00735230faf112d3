-- keep_row: somebody has read what an order's row says; the next who asks need not.
--
-- KEYS[1]  copies    hash  KEYS[2] the other one
-- KEYS[3]  changing  zset
-- ARGV[1]  how long a turn of the copies is, in ms
-- ARGV[2]  order id  ARGV[3] what its row says
--
-- Replaying it changes nothing.

keep_copies({KEYS[1], KEYS[2]}, KEYS[3], ARGV[1], 2, 3, 1)
