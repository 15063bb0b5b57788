-- What few steps ask.

local ops = {}

local flat = module('ops').flat

-- Answers exactly as a charge would, and changes nothing.
function ops.preview(step)
  local outcomes, allowed = {}, true
  for index, task in ipairs(step.tasks) do
    outcomes[index] = task.form.ask(task, task.cost, step.now)
    allowed = allowed and outcomes[index][ALLOWED] == 1
  end
  for index, task in ipairs(step.tasks) do
    if not allowed and outcomes[index][ALLOWED] == 1 then
      over(outcomes[index], task.form.ask(task, 0, step.now))
    end
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

-- The same, but all of it where a form counts what is beyond the limit.
function ops.settle_in_full(step)
  local outcomes = {}
  for index, task in ipairs(step.tasks) do
    local form = task.form
    outcomes[index] = (form.settle_in_full or form.settle)(task, step)
  end
  return flat(outcomes)
end

-- Changes what was charged, each as of a time of its own, to what it costs after all. Answers what that
-- did: given back, charged in addition, not charged for lack of room; and what remains.
function ops.adjust(step)
  local adjust, is_reset = module('adjust'), module('resets').since_taken(step)
  local done = {}
  for index, task in ipairs(step.tasks) do
    done[index] = adjust(task, step, task.actual, is_reset[index])
    if step.register and task.companion then
      call('HDEL', step.register, task.key)
    end
  end
  return flat(done)
end

-- As much as there is between the cost and what is wanted. Returns the outcome, what was taken, the end
-- of the window or slot that was charged, and how long it takes until the cost can be taken once more.
local function lease_window(task, step)
  local cost, room = task.cost, max(task.form.ask(task, 0, step.now)[REMAINING], 0)
  local taken = min(max(task.want.units, cost), room)
  if taken >= cost then
    task.cost = taken
  else
    taken = 0
  end
  local outcome = task.form.take(task, step)
  local more = task.form.ask(task, cost, step.now)[RETRY]
  return outcome, taken, task.form.algorithm.ends_at(task.limit, task.entry.state, outcome[AT]), more
end

-- Takes units in advance: the outcome, how many, until when, and when there are more.
function ops.lease(step)
  local task = step.tasks[1]
  if not (task.form.lease or task.form.algorithm.ends_at) then
    error({ text = 'UNLEASABLE nothing can be taken in advance of this limit' }, 0)
  end
  local outcome, taken, ends_at, more = (task.form.lease or lease_window)(task, step)
  outcome[#outcome + 1], outcome[#outcome + 2], outcome[#outcome + 3] = taken, ends_at, more
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
  module('register').write(step, {})
  return {}
end

-- Ends a lease in all states of its register: whether one of them was live, and where else it is held.
function ops.release(step)
  return module('register').release(step)
end

-- Renews a lease in all states of its register: whether all of them were live, and where else it is held.
function ops.renew(step)
  return module('register').renew(step)
end

-- The same for one state that is named by its key.
function ops.release_there(step)
  local leases = module('leases')
  local view = leases.open(step.keys[1], step.keys[2])
  return { leases.release(view, step.lease, leases.time_for(view, step), step) and 1 or 0 }
end

function ops.renew_there(step)
  stays(step.keys[1])
  local leases = module('leases')
  local view = leases.open(step.keys[1], step.keys[2])
  return { leases.renew(view, step.lease, leases.time_for(view, step), step) and 1 or 0 }
end

-- Stored reservations.
function ops.hold_reserve(step)
  return module('hold').reserve(step)
end

function ops.hold_settle(step)
  return module('hold').settle(step)
end

function ops.hold_extend(step)
  return module('hold').extend(step)
end

function ops.hold_look(step)
  return module('hold').look(step)
end

-- Removes a register.
function ops.unregister(step)
  call('DEL', unpack(step.keys))
  return {}
end

return ops
