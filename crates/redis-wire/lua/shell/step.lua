-- A step as it is written in KEYS and ARGV: read, and done.

local function read_task(op)
  local limit = limits[number()]
  local form = module(limit.kind .. '_form')
  local task = { form = form, limit = limit, cost = number(), first = number(), key = key(), entry = nil }
  if limit.has_companion then
    task.companion = key()
  elseif op == 'adjust' or op == 'forget' then
    task.reset_note = key()
  end
  if op == 'adjust' then
    task.charged_at, task.taken_at, task.actual = number(), number(), number()
  elseif op == 'forget' then
    task.remembered = number()
  elseif op == 'lease' then
    task.want = { units = number(), previous = text(), used = number(), lasts = number() }
  elseif op == 'hold_reserve' then
    task.group, task.index, task.own, task.unit, task.unit_cost = number(), text(), number(), text(), text()
    task.limit_text, task.label = text(), text()
    if text() == 'taken' then
      task.charged_at, task.taken_at = number(), number()
    end
  end
  return task
end

local function read(op)
  local step = { op = op, now = number(), is_supplied = true, tasks = nil }
  if step.now < 0 then
    step.now, step.is_supplied = time, false
  elseif text() == 'ends' then
    step.ends = key()
  end
  step.lease = text()
  if step.lease ~= '' and text() == 'registered' then
    step.register, step.there = key(), {}
    for index = 1, number() do
      step.there[index] = { key = text(), ttl = number() }
    end
  end
  local keys = number()
  if keys > 0 then
    step.keys = {}
    for index = 1, keys do
      step.keys[index] = key()
    end
  end
  local tasks = {}
  for index = 1, number() do
    tasks[index] = read_task(step.op)
  end
  step.tasks = tasks
  if op ~= 'charge' and string.sub(op, 1, 5) == 'hold_' then
    step.args = {}
    for index = 1, number() do
      step.args[index] = text()
    end
  end
  return step
end

-- Reads and checks every state, then does what is asked.
local function run(step)
  if step.ends then
    module('ends').expire(step)
  end
  if step.op == 'heal' then
    return module('heal')(step)
  elseif step.op == 'forget' then
    return module('resets').forget(step)
  end
  for index, task in ipairs(step.tasks) do
    if task.first < index then
      task.entry = step.tasks[task.first].entry
    else
      task.entry = task.form:open(task.key, task.limit, task.companion)
      if task.limit.has_held and not step.is_supplied then
        module('held').expire(task)
      end
    end
  end
  local op = module('ops')[step.op] or module('rare_ops')[step.op]
  return op(step)
end

return { read = read, run = run }
