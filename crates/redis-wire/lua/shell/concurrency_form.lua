-- How the states of concurrency limits are charged: under the step's lease, or only asked.

local form = form_of('spilled')

local leases = module('leases')
form.algorithm = module('concurrency')

function form.open(_, key, _, companion)
  local view = leases.open(key, companion)
  return { key = key, is_kept = view.is_kept, state = view, changed_at = view.changed_at }
end

function form.takes(task, step)
  return task.cost > 0 and step.lease ~= ''
end

function form.charge(task, step)
  form.algorithm.charge(task.limit, task.entry.state, step.lease, task.cost, step.now)
end

-- A denial that rebases nothing writes nothing.
function form.save(entry, step, reset_at)
  if reset_at or entry.state.changed_at ~= entry.changed_at then
    entry.state.save(step, reset_at)
    entry.changed_at, entry.is_kept = entry.state.changed_at, true
  end
end

function form.settle(task, step)
  return over(form.ask(task, task.cost, step.now), form.ask(task, 0, step.now))
end

function form.give_back(task, step)
  if task.entry.is_kept and step.lease ~= '' then
    leases.release(task.entry.state, step.lease, step.now, step)
  end
end

return form
