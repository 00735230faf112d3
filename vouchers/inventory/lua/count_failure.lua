-- count_failure: count that an entry failed alone while the database took another write.
--
-- KEYS[1]  tries  hash  order id -> <failures> <time of the last in ms>
-- ARGV[1]  order id
--
-- Returns how many failures were counted.
-- @include now_in_ms
-- @include integer
-- @include count_failure

return count_failure(KEYS[1], ARGV[1], now_in_ms())
