-- States that grow: changed in place, in a hash or a sorted set.
--
-- A form that is kept so has, in addition to these functions: algorithm, open(form, key, limit, companion),
-- and save(entry, step, reset_at), which writes what has changed and, given a time, until when it
-- matters.

local spilled = {}

function spilled.ask(task, cost, now)
  return task.form.algorithm.decide(task.limit, task.entry.state, cost, now)
end

-- Whether an allowed charge leaves anything behind.
function spilled.takes(task)
  return task.cost > 0
end

function spilled.charge(task, step)
  task.form.algorithm.charge(task.limit, task.entry.state, task.cost, step.now)
end

function spilled.take(task, step)
  local form = task.form
  local outcome = spilled.ask(task, task.cost, step.now)
  if outcome[ALLOWED] == 0 then
    form.algorithm.rebase(task.limit, task.entry.state, step.now)
    form.save(task.entry, step)
  elseif form.takes(task, step) then
    form.charge(task, step)
    form.save(task.entry, step, outcome[RESET_AT])
  end
  return outcome
end

function spilled.settle(task, step)
  local outcome = spilled.ask(task, task.cost, step.now)
  if task.cost > 0 or task.entry.is_kept then
    task.form.algorithm.settle(task.limit, task.entry.state, task.cost, step.now)
    over(outcome, spilled.ask(task, 0, step.now))
    task.form.save(task.entry, step, outcome[RESET_AT])
  end
  return outcome
end

function spilled.give_back(task, step)
  if task.entry.is_kept then
    task.form.algorithm.give_back(task.limit, task.entry.state, task.cost, task.charged_at, step.now)
    task.form.save(task.entry, step, spilled.ask(task, 0, step.now)[RESET_AT])
  end
end

-- How much a give-back would take back.
function spilled.given_back(task, step)
  local entry = task.entry
  if not entry.is_kept then
    return 0
  end
  return task.form.algorithm.given_back(task.limit, entry.state, task.cost, task.charged_at, step.now)
end

return spilled
