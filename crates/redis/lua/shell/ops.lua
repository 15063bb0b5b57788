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

local function charge_all(step)
  local tasks, outcomes, allowed = step.tasks, {}, true
  for index, task in ipairs(tasks) do
    outcomes[index] = task.form.ask(task, task.cost, step.now)
    allowed = allowed and outcomes[index][ALLOWED] == 1
  end
  for index, task in ipairs(tasks) do
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
