-- What can be asked of a step's keys.

local ops = {}

-- Notes in a lease's register that it holds places of these states, until `ends_at` at least.
local function note(step, fields, ends_at)
  for _, there in ipairs(step.there) do
    fields[#fields + 1], fields[#fields + 2] = there.key, format('there %.0f', there.ttl)
    ends_at = max(ends_at, plus(step.now, there.ttl))
  end
  if #fields == 0 then
    return
  end
  call('HSET', step.register, unpack(fields))
  if step.is_supplied then
    call('PEXPIRE', step.register, A_DAY)
  elseif call('PEXPIREAT', step.register, expiry(ends_at), 'NX') == 0 then
    call('PEXPIREAT', step.register, expiry(ends_at), 'GT')
  end
end

-- Writes the register of a lease that was taken: which states it holds places of, here or in another
-- slot, and how long it lasts there.
local function register(step, outcomes)
  local ends_at, fields = 0, {}
  for index, task in ipairs(step.tasks) do
    if task.first == index and task.companion and task.cost > 0 then
      fields[#fields + 1], fields[#fields + 2] = task.place.key, format('here %.0f', task.limit.lease_ttl)
      ends_at = max(ends_at, plus(outcomes[index][AT], task.limit.lease_ttl))
    end
  end
  note(step, fields, ends_at)
end

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

-- Charges every limit or none.
function ops.charge(step)
  local tasks = step.tasks
  local outcomes = {}
  if #tasks == 1 then
    outcomes[1] = tasks[1].form.take(tasks[1], step)
    if step.register and outcomes[1][ALLOWED] == 1 then
      register(step, outcomes)
    end
    return outcomes[1]
  end
  local allowed = true
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
    register(step, outcomes)
  end
  return flat(outcomes)
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

-- Charges what is known only afterwards, as much of it as fits.
function ops.settle(step)
  local outcomes = {}
  for index, task in ipairs(step.tasks) do
    outcomes[index] = task.form.settle(task, step)
  end
  return flat(outcomes)
end

-- Takes back what was charged, each as of a time of its own.
function ops.give_back(step)
  for _, task in ipairs(step.tasks) do
    task.form.give_back(task, step)
    if step.register and task.companion then
      call('HDEL', step.register, task.place.key)
    end
  end
  return {}
end

-- Takes units in advance: the outcome, how many, and until when.
function ops.lease(step)
  local task = step.tasks[1]
  local outcome, taken, ends_at = task.form.lease(task, step)
  outcome[#outcome + 1], outcome[#outcome + 2] = taken, ends_at
  return outcome
end

-- Ends a bucket's lease; the cost is what was never used.
ops['return'] = function(step)
  local task = step.tasks[1]
  task.form.return_lease(task, step)
  return {}
end

-- Writes a register in a slot where the lease holds nothing itself.
function ops.register(step)
  note(step, {}, 0)
  return {}
end

-- Removes states, as if they had never been charged.
function ops.forget(step)
  call('DEL', unpack(step.keys))
  return {}
end
