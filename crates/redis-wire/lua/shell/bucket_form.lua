-- How a bucket is written: `debt=3 part=0 at=1794700800000000`, and ` lease=<id>:<units>:<end>` for
-- each lease that is out.

local form = form_of('inline')

form.algorithm = module('bucket')
-- How long a debt lasts depends on the limit in force.
form.forgets_by_limit = true

local function parse_leases(tail)
  local leases, is_sound = {}, true
  local rest = string.gsub(tail, ' lease=(%x+):(%d+):(%d+)', function(id, units, ends_at)
    units, ends_at = whole_number(units), whole_number(ends_at)
    is_sound = is_sound and units and ends_at
    leases[#leases + 1] = { id = id, units = units, ends_at = ends_at }
    return ''
  end)
  return rest == '' and is_sound and leases or nil
end

function form.parse(text, limit)
  local whole, part, changed_at, tail = match(text, '^debt=(%d+) part=(%d+) at=(%d+)(.*)$')
  whole, part, changed_at = whole_number(whole), whole_number(part), whole_number(changed_at)
  if not (whole and part and changed_at and part < limit.window) then
    return nil
  end
  local leases
  if tail ~= '' then
    leases = parse_leases(tail)
    if not leases then
      return nil
    end
  end
  return { whole = whole, part = part, changed_at = changed_at, leases = leases }
end

function form.write(state)
  local text = format('debt=%.0f part=%.0f at=%.0f', state.whole, state.part, state.changed_at)
  if state.leases then
    for _, lease in ipairs(state.leases) do
      text = text .. format(' lease=%s:%.0f:%.0f', lease.id, lease.units, lease.ends_at)
    end
  end
  return text
end

function form.lease(task, step)
  local want = task.want
  want.id, want.units = step.lease, max(want.units, task.cost)
  local lease = module('bucket_leases').lease
  local outcome, next, taken, ends_at, more = lease(task.limit, task.entry.state, task.cost, want, step.now)
  form.replace(task, next, step)
  return outcome, taken, ends_at, more
end

function form.return_lease(task, step)
  if task.entry.is_kept then
    local return_lease = module('bucket_leases').return_lease
    form.replace(task, return_lease(task.limit, task.entry.state, step.lease, task.cost, step.now), step)
  end
end

return form
