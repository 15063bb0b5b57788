-- States of a few numbers: one readable text each.

local function inline_form(algorithm, parse, write)
  local form = {}

  function form.open(key, _, limit)
    local text = call('GET', key)
    if not text then
      return { key = key, state = algorithm().fresh(), is_kept = false }
    end
    return { key = key, state = parse(text, limit) or unreadable(key), is_kept = true }
  end

  function form.ask(task, cost, now)
    return (algorithm().decide(task.limit, task.place.state, cost, now))
  end

  local function keep(task, next, reset_at, step)
    local place = task.place
    if next == place.state and place.is_kept then
      if step.is_supplied or not form.forgets_by_limit or reset_at <= step.now then
        return
      end
      -- A limit that was lowered takes longer to forget.
      call('PEXPIREAT', place.key, expiry(reset_at), 'GT')
    elseif step.is_supplied and (place.is_kept or reset_at > step.now) then
      call('SET', place.key, write(next), 'PX', A_DAY)
      place.is_kept = true
    elseif reset_at > step.now then
      call('SET', place.key, write(next), 'PXAT', expiry(reset_at))
      place.is_kept = true
    elseif place.is_kept then
      call('DEL', place.key)
      place.is_kept = false
    end
    place.state = next
  end

  function form.take(task, step)
    local outcome, next = algorithm().decide(task.limit, task.place.state, task.cost, step.now)
    keep(task, next, outcome[RESET_AT], step)
    return outcome
  end

  function form.settle(task, step)
    local decide, limit, state = algorithm().decide, task.limit, task.place.state
    local next = algorithm().settle(limit, state, task.cost, step.now)
    local outcome = decide(limit, state, task.cost, step.now)
    local fits = task.cost <= decide(limit, state, 0, step.now)[REMAINING]
    -- Nothing waits for what has happened already: what would have had to wait did not fit.
    if outcome[ALLOWED] == 1 and not fits then
      outcome[RETRY] = outcome[DELAY]
    end
    outcome[ALLOWED], outcome[DELAY] = fits and 1 or 0, 0
    over(outcome, (decide(limit, next, 0, step.now)))
    keep(task, next, outcome[RESET_AT], step)
    return outcome
  end

  -- Keeps a state that was made in another way.
  function form.replace(task, next, step)
    local outcome = algorithm().decide(task.limit, next, 0, step.now)
    keep(task, next, outcome[RESET_AT], step)
  end

  function form.give_back(task, step)
    if task.place.is_kept then
      local state = task.place.state
      form.replace(task, algorithm().give_back(task.limit, state, task.cost, task.charged_at, step.now), step)
    end
  end

  -- Takes as much as there is between the cost and what is wanted. Returns the outcome, what was
  -- taken, and the end of the window that was charged.
  function form.lease(task, step)
    local room = form.ask(task, 0, step.now)[REMAINING]
    local taken = min(max(task.want.units, task.cost), room)
    if taken >= task.cost then
      task.cost = taken
    else
      taken = 0
    end
    local outcome = form.take(task, step)
    return outcome, taken, algorithm().ends_at(task.limit, task.place.state, outcome[AT])
  end

  return form
end

local function bucket_form()
  local function parse_leases(tail)
    local leases = {}
    local rest = string.gsub(tail, ' lease=(%x+):(%d+):(%d+)', function(id, units, ends_at)
      leases[#leases + 1] = { id = id, units = whole_number(units), ends_at = whole_number(ends_at) }
      return ''
    end)
    if rest ~= '' then
      return nil
    end
    for _, lease in ipairs(leases) do
      if not (lease.units and lease.ends_at) then
        return nil
      end
    end
    return leases
  end

  local function parse(text, limit)
    local whole, part, changed_at, tail = match(text, '^debt=(%d+) part=(%d+) at=(%d+)(.*)$')
    whole, part, changed_at = whole_number(whole), whole_number(part), whole_number(changed_at)
    if not (whole and part and changed_at and part < limit.window) then
      return nil
    end
    local state = { whole = whole, part = part, changed_at = changed_at }
    if tail ~= '' then
      state.leases = parse_leases(tail)
      return state.leases and state
    end
    return state
  end

  local function write(state)
    local text = format('debt=%.0f part=%.0f at=%.0f', state.whole, state.part, state.changed_at)
    for _, lease in ipairs(state.leases or {}) do
      text = text .. format(' lease=%s:%.0f:%.0f', lease.id, lease.units, lease.ends_at)
    end
    return text
  end

  local form = inline_form(bucket, parse, write)
  form.forgets_by_limit = true

  function form.limit(_, number)
    return { count = number(), window = number(), burst = number(), to_full = number(), hold = number() }
  end

  function form.lease(task, step)
    local want = task.want
    want.id = step.lease
    want.units = max(want.units, task.cost)
    local outcome, next, taken, ends_at = bucket().lease(task.limit, task.place.state, task.cost, want, step.now)
    form.replace(task, next, step)
    return outcome, taken, ends_at
  end

  function form.return_lease(task, step)
    if task.place.is_kept then
      form.replace(task, bucket().return_lease(task.limit, task.place.state, step.lease, task.cost, step.now), step)
    end
  end

  return form
end

local function fixed_window_form()
  local function parse(text)
    local opened_at, changed_at, used = match(text, '^opened=(%d+) at=(%d+) used=(%d+)$')
    opened_at, changed_at, used = whole_number(opened_at), whole_number(changed_at), whole_number(used)
    return opened_at and changed_at and used and { opened_at = opened_at, changed_at = changed_at, used = used }
  end

  local function write(state)
    return format('opened=%.0f at=%.0f used=%.0f', state.opened_at, state.changed_at, state.used)
  end

  local form = inline_form(fixed_window, parse, write)

  function form.limit(text, number)
    local count, window = number(), text()
    return { count = count, window = tonumber(window) or window, from_first = text() == 'first_request' }
  end

  return form
end

local function counter_form()
  local function parse(text)
    local changed_at, current, previous = match(text, '^at=(%d+) current=(%d+) previous=(%d+)$')
    changed_at, current, previous = whole_number(changed_at), whole_number(current), whole_number(previous)
    return changed_at and current and previous
      and { changed_at = changed_at, current = current, previous = previous }
  end

  local function write(state)
    return format('at=%.0f current=%.0f previous=%.0f', state.changed_at, state.current, state.previous)
  end

  local form = inline_form(sliding_window_counter, parse, write)

  function form.limit(_, number)
    return { count = number(), window = number() }
  end

  return form
end
