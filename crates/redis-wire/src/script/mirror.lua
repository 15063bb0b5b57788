-- What the mirror test needs around the algorithms: views over plain tables in place of Redis, and
-- one function for each thing that is done to a key.

local function log_view()
  local entries = {}
  local log = {}
  function log.length()
    return #entries
  end
  function log.entry(rank)
    local entry = entries[rank + 1]
    return entry[1], entry[2], entry[3]
  end
  function log.up_to(time)
    local count = 0
    while entries[count + 1] and entries[count + 1][1] <= time do
      count = count + 1
    end
    return count
  end
  function log.move(by)
    for _, entry in ipairs(entries) do
      entry[1] = minus(entry[1], by)
    end
  end
  function log.forget(count)
    for _ = 1, count do
      table.remove(entries, 1)
    end
  end
  function log.replace(rank, new)
    while #entries > rank do
      table.remove(entries)
    end
    for _, entry in ipairs(new) do
      entries[#entries + 1] = entry
    end
  end
  return log
end

local function leases_view()
  local places = {}
  local leases = { changed_at = 0, held = 0 }
  local function index_of(id)
    for index, place in ipairs(places) do
      if place.id == id then
        return index
      end
    end
  end
  function leases.length()
    return #places
  end
  function leases.entry(rank)
    local place = places[rank + 1]
    return place.ends_at, place.cost, place.id
  end
  function leases.up_to(time)
    local count = 0
    while places[count + 1] and places[count + 1].ends_at <= time do
      count = count + 1
    end
    return count
  end
  function leases.find(id)
    local place = places[index_of(id) or 0]
    if place then
      return place.ends_at, place.cost, place.ttl
    end
  end
  function leases.move(by)
    for _, place in ipairs(places) do
      place.ends_at = minus(place.ends_at, by)
    end
  end
  function leases.remove(id, cost)
    table.remove(places, index_of(id))
    leases.held = leases.held - cost
  end
  function leases.insert(id, cost, ttl, ends_at)
    local index = leases.up_to(ends_at) + 1
    table.insert(places, index, { id = id, cost = cost, ttl = ttl, ends_at = ends_at })
    leases.held = leases.held + cost
  end
  function leases.changed(at)
    leases.changed_at = at
  end
  return leases
end

local views = { sliding_window_log = log_view, concurrency = leases_view }

local mirror = {}

function mirror.fresh(name)
  local algorithm = module(name)
  return { algorithm = algorithm, state = (views[name] or algorithm.fresh)() }
end

-- Decides and changes nothing.
function mirror.ask(key, limit, cost, now)
  return unpack((key.algorithm.decide(limit, key.state, cost, now)))
end

-- Takes what is allowed.
function mirror.charge(key, limit, cost, now, id)
  local outcome, next = key.algorithm.decide(limit, key.state, cost, now)
  if next then
    key.state = next
  elseif outcome[ALLOWED] == 0 then
    key.algorithm.rebase(limit, key.state, now)
  elseif cost > 0 and key.algorithm.release then
    key.algorithm.charge(limit, key.state, id, cost, now)
  elseif cost > 0 then
    key.algorithm.charge(limit, key.state, cost, now)
  end
  return unpack(outcome)
end

function mirror.settle(key, limit, cost, now)
  key.state = key.algorithm.settle(limit, key.state, cost, now) or key.state
end

function mirror.settle_in_full(key, limit, cost, now)
  key.state = key.algorithm.settle_in_full(limit, key.state, cost, now)
end

function mirror.give_back(key, limit, cost, charged_at, now)
  key.state = key.algorithm.give_back(limit, key.state, cost, charged_at, now) or key.state
end

function mirror.given_back(key, limit, cost, charged_at, now)
  return key.algorithm.given_back(limit, key.state, cost, charged_at, now)
end

function mirror.release(key, id, now)
  return key.algorithm.release(key.state, id, now)
end

function mirror.renew(key, id, now)
  return key.algorithm.renew(key.state, id, now)
end

mirror.mul_div = mul_div
mirror.mul_add_div_ceil = mul_add_div_ceil
mirror.around = function(window, at)
  return module('calendar').around(window, at)
end

return mirror
