-- How a log is kept: a sorted set by time, whose members are `<running total>:<cost>`.

local form = form_of('spilled')

form.algorithm = module('sliding_window_log')

local function view(key)
  local log = module('sorted_set')(key, 1, function(found, put)
    local total, cost = match(found[1] or '', '^(%d+):(%d+)$')
    local made_at = found[2] and match(found[2], '^%d+$')
    put(0, {
      whole_number(made_at) or unreadable(key),
      whole_number(total) or unreadable(key),
      whole_number(cost) or unreadable(key),
    })
  end)

  function log.forget(count)
    call('ZREMRANGEBYRANK', key, 0, count - 1)
    log.changed_by(-count)
  end

  function log.replace(rank, new)
    local removed = log.length() - rank
    if removed > 0 then
      if rank == 0 and new[1] then
        stays(key)
      end
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

function form.open(_, key)
  local log = view(key)
  if log.length() > 0 then
    -- Read before anything is written, to find out whether it can be.
    log.entry(log.length() - 1)
  end
  return { key = key, is_kept = log.length() > 0, state = log }
end

function form.save(entry, step, reset_at)
  entry.is_kept = entry.state.length() > 0
  if entry.is_kept and reset_at then
    expire(step, entry.key, reset_at)
  end
end

return form
