-- How the permits of a concurrency limit are kept.

local leases = {}

local concurrency, counts = module('concurrency'), module('counts')

-- The permits of one key: a sorted set of ids by their end, and a hash with the time of the last change
-- (`at`), the number of permits (`held`), whether that time was supplied, and of each id its cost and
-- how long it lasts.
function leases.open(key, companion)
  local view = module('sorted_set')(key, 32, function(found, put)
    local ids = {}
    for index = 1, #found, 2 do
      ids[#ids + 1] = found[index]
    end
    local costs = call('HMGET', companion, unpack(ids))
    for index, id in ipairs(ids) do
      local cost = whole_number(match(costs[index] or '', '^(%d+) '))
      put(index - 1, { counts.count(found[2 * index], key), cost or 1, id })
    end
  end)
  local known = call('HMGET', companion, 'at', 'held', 'supplied')
  view.is_kept = known[1] and true or view.length() > 0
  view.is_supplied = known[3] == '1'
  view.changed_at = counts.count(known[1] or '0', companion)
  view.held = 0
  if view.length() > 0 then
    -- If the hash was lost, each id counts as one permit.
    view.held = counts.count(known[2] or view.length(), companion)
    -- Each id holds at least one permit.
    if view.held < view.length() then
      counts.negative(companion)
    end
  end

  function view.find(id)
    local ends_at = call('ZSCORE', key, id)
    if ends_at then
      local cost, ttl = match(call('HGET', companion, id) or '', '^(%d+) (%d+)$')
      return tonumber(ends_at), whole_number(cost) or 1, whole_number(ttl) or 0
    end
  end

  function view.remove(id, cost)
    call('ZREM', key, id)
    call('HDEL', companion, id)
    view.held = max(view.held - cost, 0)
    view.changed_by(-1)
  end

  function view.insert(id, cost, ttl, ends_at)
    if view.length() == 0 and view.is_kept then
      call('DEL', companion)
    end
    call('ZADD', key, ends_at, id)
    call('HSET', companion, id, format('%.0f %.0f', cost, ttl))
    view.held = view.held + cost
    view.changed_by(1)
  end

  function view.changed(at)
    view.changed_at = at
  end

  -- Writes the hash, and when it expires if that has changed.
  function view.save(step, reset_at)
    if not (reset_at or known[1]) then
      -- The hash was lost: it is not to come back for good.
      if view.length() == 0 then
        return
      end
      reset_at = view.entry(view.length() - 1)
    end
    view.is_kept, view.is_supplied = true, step.is_supplied or view.is_supplied
    call('HSET', companion, 'at', view.changed_at, 'held', view.held, 'supplied', view.is_supplied and 1 or 0)
    if reset_at then
      local kind = { is_supplied = view.is_supplied }
      expire(kind, companion, reset_at)
      if view.length() > 0 then
        expire(kind, key, reset_at)
      end
    end
  end

  return view
end

-- As of when leases are released and renewed: now, but where times are supplied, as of the last change.
function leases.time_for(view, step)
  if view.is_supplied and not step.is_supplied then
    return nil
  end
  return step.now
end

-- Ends a lease. Whether it was still live.
function leases.release(view, id, now, step)
  local length = view.length()
  local was_live = concurrency.release(view, id, now)
  if view.length() ~= length then
    view.save(step)
  end
  return was_live
end

-- Lets a lease last its whole time again. False if it has ended.
function leases.renew(view, id, now, step)
  local length = view.length()
  if concurrency.renew(view, id, now) then
    view.save(step, (view.entry(length - 1)))
    return true
  end
  if view.length() ~= length then
    view.save(step)
  end
  return false
end

return leases
