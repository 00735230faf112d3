-- For luacheck, which script/lint runs on the scripts as Redis gets them, with their includes.
std = "lua51"
globals = { "redis", "KEYS", "ARGV", "cjson" }
