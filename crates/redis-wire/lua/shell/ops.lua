-- The most frequent operations: to charge, and to peek at what a charge would return.

local ops = {}

-- All outcomes in one list, as they are answered.
local function flat(outcomes)
  local numbers = {}
  for _, outcome in ipairs(outcomes) do
    for _, number in ipairs(outcome) do
      numbers[#numbers + 1] = number
    end
  end
  return numbers
end
ops.flat = flat

-- Charges all tasks or none, or those of a group that are not charged yet. Adds their outcomes; whether it did.
local function charge_tasks(step, group, outcomes)
  local allowed = true
  for index, task in ipairs(step.tasks) do
    if not group or task.group == group and not task.taken_at then
      outcomes[index] = task.form.ask(task, task.cost, step.now)
      allowed = allowed and outcomes[index][ALLOWED] == 1
    end
  end
  for index, task in ipairs(step.tasks) do
    if not group or task.group == group and not task.taken_at then
      if allowed then
        -- The state of a merged charge is taken once, and answers for all of its parts.
        if task.first == index then
          outcomes[index] = task.form.take(task, step)
        end
      elseif outcomes[index][ALLOWED] == 1 then
        over(outcomes[index], task.form.ask(task, 0, step.now))
      else
        outcomes[index] = task.form.take(task, step)
      end
    end
  end
  return allowed
end
ops.charge_tasks = charge_tasks

local function charge_all(step)
  local outcomes = {}
  local allowed = charge_tasks(step, nil, outcomes)
  if step.register and allowed then
    module('register').write(step, outcomes)
  end
  return flat(outcomes)
end

-- Charges every limit or none.
function ops.charge(step)
  local task = step.tasks[1]
  if step.tasks[2] or not task then
    return charge_all(step)
  end
  local outcome = task.form.take(task, step)
  if step.register and outcome[ALLOWED] == 1 then
    module('register').write(step, { outcome })
  end
  return outcome
end

-- Answers as a charge would, and changes nothing.
function ops.peek(step)
  local outcomes = {}
  for index, task in ipairs(step.tasks) do
    local asked = task.form.ask(task, task.cost, step.now)
    outcomes[index] = over(asked, task.form.ask(task, 0, step.now))
  end
  return flat(outcomes)
end

return ops
