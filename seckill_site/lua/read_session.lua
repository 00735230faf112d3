-- read_session: read a session, then the facts about its user. Writes nothing.
--
-- KEYS[1]  the session as Django's engine caches it (JSON)
-- ARGV[1]  what stands before a user's id in the key of the user's facts
--
-- Returns {session, facts}; each is '' if the cache does not know it.

local session = redis.call('GET', KEYS[1])
if not session then return {'', ''} end
local ok, content = pcall(cjson.decode, session)
local user_id = ok and type(content) == 'table' and content['_auth_user_id']
if type(user_id) ~= 'string' then return {session, ''} end
return {session, redis.call('GET', ARGV[1] .. user_id) or ''}
