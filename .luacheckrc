-- For luacheck, which script/lint runs on the scripts as Redis gets them, with their includes.
std = "lua51"
globals = { "redis", "KEYS", "ARGV", "cjson" }
-- Every script of the locks gets all of _lock.lua, and uses a part of it.
files["locks/lua"] = { ignore = { "211" } }
