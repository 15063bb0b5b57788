-- States that grow: a hash for slots, a sorted set for a log.

local function spilled_form(algorithm)
  local form = {}

  function form.ask(task, cost, now)
    return algorithm().decide(task.limit, task.place.state, cost, now)
  end

  -- Whether an allowed charge leaves anything behind.
  function form.takes(task)
    return task.cost > 0
  end

  function form.charge(task, step)
    algorithm().charge(task.limit, task.place.state, task.cost, step.now)
  end

  function form.take(task, step)
    local outcome = form.ask(task, task.cost, step.now)
    if outcome[ALLOWED] == 0 then
      algorithm().mend(task.limit, task.place.state, step.now)
      form.save(task.place, step)
    elseif form.takes(task, step) then
      form.charge(task, step)
      form.save(task.place, step, outcome[RESET_AT])
    end
    return outcome
  end

  function form.settle(task, step)
    local outcome = form.ask(task, task.cost, step.now)
    if task.cost > 0 or task.place.is_kept then
      algorithm().settle(task.limit, task.place.state, task.cost, step.now)
      over(outcome, form.ask(task, 0, step.now))
      form.save(task.place, step, outcome[RESET_AT])
    end
    return outcome
  end

  function form.give_back(task, step)
    if task.place.is_kept then
      algorithm().give_back(task.limit, task.place.state, task.cost, task.charged_at, step.now)
      form.save(task.place, step, form.ask(task, 0, step.now)[RESET_AT])
    end
  end

  return form
end

local function slots_form()
  local form = spilled_form(sliding_window_slots)

  function form.limit(_, number)
    return { count = number(), window = number(), slot = number(), counted = number() }
  end

  function form.open(key)
    local fields = call('HGETALL', key)
    local changed_at, counts, kept = 0, {}, {}
    for index = 1, #fields, 2 do
      local field, number = fields[index], whole_number(fields[index + 1])
      if not number then
        unreadable(key)
      elseif field == 'at' then
        changed_at = number
      else
        local slot = tonumber(field) or unreadable(key)
        counts[slot], kept[slot] = number, number
      end
    end
    local state = { changed_at = changed_at, counts = counts }
    return { key = key, state = state, is_kept = #fields > 0, kept = kept, kept_at = changed_at }
  end

  -- Writes what has changed. A slot that lost its count goes.
  function form.save(place, step, reset_at)
    local set, removed, kept = { 'at', place.state.changed_at }, {}, {}
    for slot, count in pairs(place.state.counts) do
      if place.kept[slot] ~= count then
        set[#set + 1], set[#set + 2] = format('%.0f', slot), count
      end
      kept[slot] = count
    end
    for slot in pairs(place.kept) do
      if not kept[slot] then
        removed[#removed + 1] = format('%.0f', slot)
      end
    end
    if #set > 2 or #removed > 0 or place.kept_at ~= place.state.changed_at then
      call('HSET', place.key, unpack(set))
      if #removed > 0 then
        call('HDEL', place.key, unpack(removed))
      end
      place.kept, place.kept_at, place.is_kept = kept, place.state.changed_at, true
    end
    if reset_at then
      expire(step, place.key, reset_at)
    end
  end

  function form.lease(task, step)
    local room = form.ask(task, 0, step.now)[REMAINING]
    local taken = min(max(task.want.units, task.cost), room)
    if taken >= task.cost then
      task.cost = taken
    else
      taken = 0
    end
    local outcome = form.take(task, step)
    return outcome, taken, sliding_window_slots().ends_at(task.limit, nil, outcome[AT])
  end

  return form
end

-- What a log and leases have in common: members of a sorted set by rank, read as they are asked for.
-- `read` makes of a member what the view tells of it.
local function sorted_set(key, page, read)
  local view = {}
  local length, entries = call('ZCARD', key), {}

  function view.length()
    return length
  end

  function view.up_to(time)
    return call('ZCOUNT', key, '-inf', time)
  end

  function view.entry(rank)
    if not entries[rank] then
      -- Of a page that would reach beyond the end, only what is there.
      local found = call('ZRANGE', key, rank, rank + page - 1, 'WITHSCORES')
      read(found, function(index, entry)
        entries[rank + index] = entry
      end)
    end
    local entry = entries[rank]
    return entry[1], entry[2], entry[3]
  end

  -- After a change: nothing that was read is true any more.
  function view.changed_by(count)
    length, entries = length + count, {}
  end

  function view.move(by)
    for start = 0, length - 1, AT_ONCE do
      local found, moved = call('ZRANGE', key, start, start + AT_ONCE - 1, 'WITHSCORES'), {}
      for index = 1, #found, 2 do
        moved[index], moved[index + 1] = minus(tonumber(found[index + 1]), by), found[index]
      end
      -- All move by the same span, so ranks stay as they are.
      call('ZADD', key, unpack(moved))
    end
    view.changed_by(0)
  end

  return view
end

local function log_form()
  local form = spilled_form(sliding_window_log)

  function form.limit(_, number)
    return { count = number(), window = number() }
  end

  local function open(key)
    local log = sorted_set(key, 1, function(found, put)
      local total, cost = match(found[1] or '', '^(%d+):(%d+)$')
      put(0, { tonumber(found[2]), whole_number(total) or unreadable(key), whole_number(cost) or unreadable(key) })
    end)

    function log.forget(count)
      call('ZREMRANGEBYRANK', key, 0, count - 1)
      log.changed_by(-count)
    end

    function log.replace(rank, new)
      local removed = log.length() - rank
      if removed > 0 then
        call('ZREMRANGEBYRANK', key, rank, -1)
      end
      for start = 1, #new, AT_ONCE do
        local members = {}
        for index = start, min(start + AT_ONCE - 1, #new) do
          members[#members + 1] = new[index][1]
          members[#members + 1] = format('%016.0f:%.0f', new[index][2], new[index][3])
        end
        call('ZADD', key, unpack(members))
      end
      log.changed_by(#new - removed)
    end

    return log
  end

  function form.open(key)
    local log = open(key)
    if log.length() > 0 then
      log.entry(log.length() - 1)
    end
    return { key = key, state = log, is_kept = log.length() > 0 }
  end

  function form.save(place, step, reset_at)
    place.is_kept = place.state.length() > 0
    if place.is_kept and reset_at then
      expire(step, place.key, reset_at)
    end
  end

  return form
end
