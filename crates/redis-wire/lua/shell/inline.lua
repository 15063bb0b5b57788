-- States of a few numbers: one readable text each, read and written whole.
--
-- A form that is kept so has, in addition to these functions: algorithm, parse(text, limit), write(state, limit).

local inline = {}

function inline.open(form, key, limit)
  local text = call('GET', key)
  if text then
    return { key = key, is_kept = true, state = form.parse(text, limit) or unreadable(key) }
  end
  return { key = key, is_kept = false, state = form.algorithm.fresh() }
end

function inline.ask(task, cost, now)
  return (task.form.algorithm.decide(task.limit, task.entry.state, cost, now))
end

-- Keeps the `next` state, which is like fresh at `reset_at`.
local function keep(task, next, reset_at, step)
  local entry = task.entry
  if next == entry.state and entry.is_kept then
    if task.form.forgets_by_limit and reset_at > step.now and not step.is_supplied then
      -- A limit that was lowered takes longer to forget.
      call('PEXPIREAT', entry.key, expiry(reset_at), 'GT')
    end
    return
  end
  if reset_at > step.now and not step.is_supplied then
    call('SET', entry.key, task.form.write(next, task.limit), 'PXAT', expiry(reset_at))
    entry.is_kept = true
  elseif step.is_supplied and (entry.is_kept or reset_at > step.now) then
    call('SET', entry.key, task.form.write(next, task.limit), 'PX', A_DAY)
    entry.is_kept = true
  elseif entry.is_kept then
    call('DEL', entry.key)
    entry.is_kept = false
  end
  entry.state = next
end

function inline.take(task, step)
  local outcome, next = task.form.algorithm.decide(task.limit, task.entry.state, task.cost, step.now)
  keep(task, next, outcome[RESET_AT], step)
  return outcome
end

local function settle_by(settle, task, step)
  local algorithm, limit, state, cost = task.form.algorithm, task.limit, task.entry.state, task.cost
  local next = settle(limit, state, cost, step.now)
  local outcome = algorithm.decide(limit, state, cost, step.now)
  local fits = cost <= max(algorithm.decide(limit, state, 0, step.now)[REMAINING], 0)
  -- Nothing waits for what has happened already: what would have had to wait did not fit.
  if outcome[ALLOWED] == 1 and not fits then
    outcome[RETRY] = outcome[DELAY]
  end
  outcome[ALLOWED], outcome[DELAY] = fits and 1 or 0, 0
  over(outcome, (algorithm.decide(limit, next, 0, step.now)))
  keep(task, next, outcome[RESET_AT], step)
  return outcome
end

function inline.settle(task, step)
  return settle_by(task.form.algorithm.settle, task, step)
end

-- Also beyond the limit, where the algorithm counts that.
function inline.settle_in_full(task, step)
  local algorithm = task.form.algorithm
  return settle_by(algorithm.settle_in_full or algorithm.settle, task, step)
end

-- Keeps a state that was made in another way.
function inline.replace(task, next, step)
  local outcome = task.form.algorithm.decide(task.limit, next, 0, step.now)
  keep(task, next, outcome[RESET_AT], step)
end

function inline.give_back(task, step)
  if task.entry.is_kept then
    local give_back = task.form.algorithm.give_back
    inline.replace(task, give_back(task.limit, task.entry.state, task.cost, task.charged_at, step.now), step)
  end
end

-- How much a give-back would take back.
function inline.given_back(task, step)
  local entry = task.entry
  if not entry.is_kept then
    return 0
  end
  return task.form.algorithm.given_back(task.limit, entry.state, task.cost, task.charged_at, step.now)
end

return inline
