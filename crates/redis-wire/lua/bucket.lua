-- Token bucket and leaky bucket: a steady flow with room for a burst.
-- Mirror of crates/core/src/algorithm/bucket.rs: same names, same order. What instances have taken
-- in advance is in bucket_leases.lua; what the most common charges need, in bucket_admit.lua.
--
-- limit: count, window, burst, to_full, hold (the longest delay; -1: wait for what is before)
-- state: whole, part, changed_at: whole + part / window requests are owed as of changed_at
--        leases: what is out on lease, if anything; debt does not fall below it

local bucket = module('bucket_admit')
local leaked = bucket.leaked

local max, min = math.max, math.min

function bucket.state_of(whole, part, changed_at, leases)
  return { whole = whole, part = part, changed_at = changed_at, leases = leases }
end

function bucket.fresh()
  return { whole = 0, part = 0, changed_at = 0, leases = nil }
end

-- What is still owed at `at`, which is not before the state's last change; and the leases that are
-- still out then.
local function repaid(limit, state, at)
  if state.leases then
    return module('bucket_leases').repaid(limit, state, at)
  end
  return leaked(limit, state.whole, state.part, at - state.changed_at)
end

-- How long a debt takes to fall to `target`, which it is above.
local function time_to_repay(limit, whole, part, target, leases, at)
  if leases then
    return module('bucket_leases').time_to_repay(limit, whole, part, target, leases, at)
  end
  return bucket.time_to_repay(limit, whole, part, target)
end

local function moved_back(limit, state, now)
  local by = set_back(state.changed_at, now, limit.to_full)
  if by == 0 then
    return state
  end
  local leases = state.leases and module('bucket_leases').moved_back(state.leases, by)
  return bucket.state_of(state.whole, state.part, minus(state.changed_at, by), leases)
end

-- What is owed now, as a state of its own.
function bucket.as_of(limit, state, now)
  state = moved_back(limit, state, now)
  local at = max(now, state.changed_at)
  local whole, part, leases = repaid(limit, state, at)
  return bucket.state_of(whole, part, at, leases)
end

-- The verdict on a `cost` that does not fit yet, or has to wait for what is before it.
local function wait_for(limit, whole, part, cost, now, leases, at)
  local owed = part > 0 and whole + 1 or whole
  if owed + cost <= limit.burst then
    return true, NOW, time_to_repay(limit, whole, part, 0, leases, at)
  end
  local wait = plus(at - now, time_to_repay(limit, whole, part, limit.burst - cost, leases, at))
  if limit.hold < 0 then
    return false, wait, 0
  elseif wait <= limit.hold then
    return true, NOW, wait
  end
  return false, wait - limit.hold, 0
end

-- Decides one charge and returns the state to keep.
--
-- A denied charge adds no debt; the state it returns is still to be kept, as it may have been moved
-- to the present.
function bucket.decide(limit, state, cost, now)
  if not state.leases then
    local whole, part, remaining, reset_at =
      bucket.admit(limit, state.whole, state.part, state.changed_at, cost, now)
    if whole then
      return { 1, remaining, NOW, reset_at, 0, now }, bucket.state_of(whole, part, now)
    end
  end
  state = moved_back(limit, state, now)
  local at = max(now, state.changed_at)
  local whole, part, leases = repaid(limit, state, at)

  -- A part of a request counts as one against the burst.
  local rounded = part > 0 and 1 or 0
  local allowed, retry, delay = true, NOW, 0
  if cost > limit.burst then
    allowed, retry = false, NEVER
  elseif cost > 0 and (limit.hold < 0 or whole + rounded + cost > limit.burst) then
    allowed, retry, delay = wait_for(limit, whole, part, cost, now, leases, at)
  end
  if allowed then
    whole = whole + cost
  end
  local reset_at = now
  if whole > 0 or part > 0 then
    reset_at = plus(at, time_to_repay(limit, whole, part, 0, leases, at))
  end
  local remaining = minus(limit.burst, whole + rounded)
  local outcome = { allowed and 1 or 0, remaining, retry, reset_at, delay, at }
  if allowed and cost > 0 then
    return outcome, bucket.state_of(whole, part, at, leases)
  end
  return outcome, state
end

-- Adds a cost that is known only afterwards, up to a full bucket of debt.
function bucket.settle(limit, state, cost, now)
  local after = bucket.as_of(limit, state, now)
  local owed = after.part > 0 and after.whole + 1 or after.whole
  if cost <= minus(limit.burst, owed) then
    after.whole = after.whole + cost
  elseif after.whole < limit.burst then
    -- The whole quota is owed. If more than that was owed already, it stays.
    after.whole, after.part = limit.burst, 0
  end
  return after
end

-- Takes back what is left of a `cost` that was charged as of `charged_at`: what has not flowed back
-- since.
function bucket.give_back(limit, state, cost, charged_at, now)
  local after = bucket.as_of(limit, state, now)
  local whole, part = leaked(limit, cost, 0, minus(after.changed_at, charged_at))
  after.whole, after.part = bucket.less(after.whole, after.part, whole, part, limit.window)
  if after.leases then
    module('bucket_leases').keep_floor(after)
  end
  return after
end

-- How much `give_back` takes back, rounded up.
function bucket.given_back(limit, state, cost, charged_at, now)
  local before = bucket.as_of(limit, state, now)
  local whole, part = leaked(limit, cost, 0, minus(before.changed_at, charged_at))
  local left = part > 0 and whole + 1 or whole
  return min(left, before.part > 0 and before.whole + 1 or before.whole)
end

return bucket
