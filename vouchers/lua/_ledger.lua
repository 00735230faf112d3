-- The condition that all scripts share; put in front of each of them by the loader.
--
-- read_ledger(sale, buyers, pending, ended, tries) takes the names of those keys and returns nil
-- where the ledger is not loaded or not whole, else the sale's figures as strings. A key of a wrong
-- type is as good as none, and lost buyers would look like an unsold sale: hence the sentinel.

local function now_in_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function integer(number)
  return string.format('%.0f', number)
end

local function is_a(key, wanted)
  local found = redis.call('TYPE', key)['ok']
  return found == wanted or found == 'none'
end

local function read_ledger(sale, buyers, pending, ended, tries)
  if not (is_a(sale, 'hash') and is_a(buyers, 'hash') and is_a(pending, 'zset')
      and is_a(ended, 'hash') and is_a(tries, 'hash')) then
    return nil
  end
  local names = {'epoch', 'total', 'begins_at_ms', 'ends_at_ms', 'limit', 'paused', 'loaded_at_ms'}
  local values = redis.call('HMGET', sale, unpack(names))
  local figures = {}
  for i, name in ipairs(names) do
    if not values[i] then return nil end
    figures[name] = values[i]
  end
  if redis.call('HGET', buyers, 'epoch') ~= figures.epoch then return nil end
  return figures
end
