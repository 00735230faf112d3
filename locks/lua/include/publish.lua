-- Publish a message and return the number of receivers; 0 if publishing is forbidden.
local function publish(channel, message)
  local heard = redis.pcall('PUBLISH', channel, message)
  return type(heard) == 'number' and heard or 0
end
