-- check_format: say whether a newer release has made the ledger of a sale.
--
-- KEYS[1]  sale  hash  `format` of the ledger (newer_format)
--
-- Returns its format if that is newer than this release's, else ''.
-- @include newer_format

return newer_format(KEYS[1]) or ''
