-- Fixed window: one counter for each window, all of it back at the window's end.
-- Mirror of crates/core/src/algorithm/fixed_window.rs: same names, same order. What the most common
-- charges need is in fixed_window_admit.lua.
--
-- limit: count, window, from_first (whether the first request opens the window), from_epoch (whether weeks, too, are
-- counted from the epoch)
-- state: opened_at, changed_at, used

local fixed_window = module('fixed_window_admit')
local window_at = fixed_window.window_at

local calendar = module('calendar')

local max, min = math.max, math.min

-- The window of a state that is open at `at`: its start, when it was last changed, what was used in it,
-- its end.
local function current(limit, state, at)
  local opened_at, used, ends_at = window_at(limit, state.opened_at, state.used, at)
  return opened_at, max(state.changed_at, opened_at), used, ends_at
end

-- The state, moved to the present if its clock has been set back since.
local function present(limit, state, now)
  local by = set_back(state.changed_at, now, calendar.longest(limit.window))
  if by == 0 then
    return state
  end
  local opened_at
  if limit.from_first then
    opened_at = minus(state.opened_at, by)
  else
    opened_at = calendar.around(limit.window, now, limit.from_epoch)
  end
  return { opened_at = opened_at, changed_at = now, used = state.used }
end

function fixed_window.fresh()
  return { opened_at = 0, changed_at = 0, used = 0 }
end

-- Decides one charge and returns the state to keep.
function fixed_window.decide(limit, state, cost, now)
  local opened_at, taken, remaining, reset_at =
    fixed_window.admit(limit, state.opened_at, state.changed_at, state.used, cost, now)
  if opened_at then
    local next = { opened_at = opened_at, changed_at = now, used = taken }
    return { 1, remaining, NOW, reset_at, 0, now }, next
  end
  state = present(limit, state, now)
  local at = max(now, state.changed_at)
  local opened_at, _, used, ends_at = current(limit, state, at)

  local allowed, retry = false, NEVER
  if cost == 0 or used + cost <= limit.count then
    allowed, retry = true, NOW
  elseif cost <= limit.count then
    retry = minus(ends_at, now)
  end
  local next = state
  if allowed and cost > 0 then
    used = used + cost
    next = { opened_at = opened_at, changed_at = at, used = used }
  end
  local reset_at = used == 0 and now or ends_at
  local outcome = outcome_of(allowed, retry, limit.count, used, reset_at, at)
  -- Below zero: by how much the limit is exceeded.
  outcome[REMAINING] = limit.count - used
  return outcome, next
end

-- Adds a cost that is known only afterwards, up to the limit.
function fixed_window.settle(limit, state, cost, now)
  state = present(limit, state, now)
  local at = max(now, state.changed_at)
  local opened_at, _, used = current(limit, state, at)
  cost = min(cost, minus(limit.count, used))
  return { opened_at = opened_at, changed_at = at, used = used + cost }
end

-- Adds a cost that was spent already, all of it, also beyond the limit. A window that the first request opens takes
-- what fits.
function fixed_window.settle_in_full(limit, state, cost, now)
  if limit.from_first then
    return fixed_window.settle(limit, state, cost, now)
  end
  state = present(limit, state, now)
  local at = max(now, state.changed_at)
  local opened_at, _, used = current(limit, state, at)
  return { opened_at = opened_at, changed_at = at, used = plus(used, cost) }
end

-- Takes back `cost` if the window in which it was charged, as of `charged_at`, is still open.
function fixed_window.give_back(limit, state, cost, charged_at, now)
  state = present(limit, state, now)
  local opened_at, changed_at, used, ends_at = current(limit, state, max(now, state.changed_at))
  if opened_at <= charged_at and charged_at < ends_at then
    return { opened_at = opened_at, changed_at = changed_at, used = minus(used, cost) }
  end
  return state
end

-- How much `give_back` takes back.
function fixed_window.given_back(limit, state, cost, charged_at, now)
  state = present(limit, state, now)
  local opened_at, _, used, ends_at = current(limit, state, max(now, state.changed_at))
  if opened_at <= charged_at and charged_at < ends_at then
    return min(used, cost)
  end
  return 0
end

-- The end of the window that is open at `at`.
function fixed_window.ends_at(limit, state, at)
  local _, _, _, ends_at = current(limit, state, at)
  return ends_at
end

return fixed_window
