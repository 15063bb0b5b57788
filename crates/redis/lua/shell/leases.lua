-- The leases of concurrency limits, and where a lease is held.

-- The leases of one key: a sorted set of names by their end, and a hash that tells when they were
-- last changed (`at`), how many places they take (`held`), whether that time was supplied, and of each
-- name its cost and how long it lasts.
local function open_leases(key, companion)
  local leases = sorted_set(key, 32, function(found, put)
    local ids = {}
    for index = 1, #found, 2 do
      ids[#ids + 1] = found[index]
    end
    local costs = call('HMGET', companion, unpack(ids))
    for index, id in ipairs(ids) do
      local cost = whole_number(match(costs[index] or '', '^(%d+) '))
      put(index - 1, { tonumber(found[2 * index]), cost or 1, id })
    end
  end)
  local known = call('HMGET', companion, 'at', 'held', 'supplied')
  leases.is_kept = known[1] and true or leases.length() > 0
  leases.is_supplied = known[3] == '1'
  leases.changed_at = whole_number(known[1] or '0') or unreadable(companion)
  leases.held = 0
  if leases.length() > 0 then
    -- Where the hash was lost, each lease is taken to hold one place.
    leases.held = whole_number(known[2] or leases.length()) or unreadable(companion)
  end

  function leases.find(id)
    local ends_at = call('ZSCORE', key, id)
    if ends_at then
      local cost, ttl = match(call('HGET', companion, id) or '', '^(%d+) (%d+)$')
      return tonumber(ends_at), whole_number(cost) or 1, whole_number(ttl) or 0
    end
  end

  function leases.remove(id, cost)
    call('ZREM', key, id)
    call('HDEL', companion, id)
    leases.held = max(leases.held - cost, 0)
    leases.changed_by(-1)
  end

  function leases.insert(id, cost, ttl, ends_at)
    if leases.length() == 0 and leases.is_kept then
      call('DEL', companion)
    end
    call('ZADD', key, ends_at, id)
    call('HSET', companion, id, format('%.0f %.0f', cost, ttl))
    leases.held = leases.held + cost
    leases.changed_by(1)
  end

  function leases.changed(at)
    leases.changed_at = at
  end

  -- Writes what is told of all of them, and until when it matters if that has changed.
  function leases.save(step, reset_at)
    leases.is_kept, leases.is_supplied = true, step.is_supplied or leases.is_supplied
    call('HSET', companion, 'at', leases.changed_at, 'held', leases.held, 'supplied', leases.is_supplied and 1 or 0)
    if reset_at then
      local kind = { is_supplied = leases.is_supplied }
      expire(kind, companion, reset_at)
      if leases.length() > 0 then
        expire(kind, key, reset_at)
      end
    end
  end

  return leases
end

-- Ends a lease. Whether it was still live.
local function release(leases, id, now, step)
  local length = leases.length()
  local was_live = concurrency().release(leases, id, now)
  if leases.length() ~= length then
    leases.save(step)
  end
  return was_live
end

-- Lets a lease last its whole time again. False if it has ended.
local function renew(leases, id, now, step)
  local length = leases.length()
  if concurrency().renew(leases, id, now) then
    leases.save(step, (leases.entry(length - 1)))
    return true
  end
  if leases.length() ~= length then
    leases.save(step)
  end
  return false
end

local function concurrency_form()
  local form = spilled_form(concurrency)

  function form.limit(_, number)
    return { holders = number(), lease_ttl = number() }
  end

  function form.open(key, companion)
    local leases = open_leases(key, companion)
    return { key = key, state = leases, is_kept = leases.is_kept, changed_at = leases.changed_at }
  end

  function form.takes(task, step)
    return task.cost > 0 and step.lease ~= ''
  end

  function form.charge(task, step)
    concurrency().charge(task.limit, task.place.state, step.lease, task.cost, step.now)
  end

  -- A denial that mends nothing writes nothing.
  function form.save(place, step, reset_at)
    if reset_at or place.state.changed_at ~= place.changed_at then
      place.state.save(step, reset_at)
      place.changed_at, place.is_kept = place.state.changed_at, true
    end
  end

  function form.settle(task, step)
    return over(form.ask(task, task.cost, step.now), form.ask(task, 0, step.now))
  end

  function form.give_back(task, step)
    if task.place.is_kept and step.lease ~= '' then
      release(task.place.state, step.lease, step.now, step)
    end
  end

  return form
end
