-- How many arguments a script passes to one command: well below what `unpack` takes (some 8,000).
local CHUNK_SIZE = 500
