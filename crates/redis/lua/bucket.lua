-- Token bucket and leaky bucket: a steady flow with room for a burst.
-- Mirror of crates/core/src/algorithm/bucket.rs: same names, same order.
--
-- limit: count, window, burst, to_full, hold (the longest delay; -1: wait for what is before)
-- state: whole, part, changed_at: whole + part / window requests are owed as of changed_at
--        leases: units that instances have taken in advance, each { id, units, ends_at }, in the
--        order in which they end; nil if there are none. Debt does not fall below what is out.

local bucket = {}

local max, min = math.max, math.min

local function state_of(whole, part, changed_at, leases)
  return { whole = whole, part = part, changed_at = changed_at, leases = leases }
end

-- `whole + part / window` requests, rounded up: what counts against the burst.
local function ceil(whole, part)
  return part > 0 and whole + 1 or whole
end

-- Less by `less_whole + less_part / window`, stopping at nothing.
local function less(whole, part, less_whole, less_part, window)
  if part < less_part then
    whole, part = whole - 1, part + window
  end
  if whole < less_whole then
    return 0, 0
  end
  return whole - less_whole, part - less_part
end

-- What is left of a debt after `elapsed`.
local function leaked(limit, whole, part, elapsed)
  local less_whole, less_part = mul_div(elapsed, limit.count, limit.window)
  return less(whole, part, less_whole, less_part, limit.window)
end

local function units_out(leases)
  local units = 0
  for _, lease in ipairs(leases) do
    units = units + lease.units
  end
  return units
end

-- The leases that last beyond `at`, in a list of their own; nil if there are none.
local function live(leases, at)
  local left
  for _, lease in ipairs(leases) do
    if lease.ends_at > at then
      left = left or {}
      left[#left + 1] = lease
    end
  end
  return left
end

-- The debt at `at` where leases are out: until the end of each, debt stops at what is out; from
-- then on its units are debt like any other.
local function repaid_on_lease(limit, state, at)
  local whole, part, since = state.whole, state.part, state.changed_at
  local out = units_out(state.leases)
  for _, lease in ipairs(state.leases) do
    if lease.ends_at > at then
      break
    end
    whole, part = leaked(limit, whole, part, minus(lease.ends_at, since))
    if whole < out then
      whole, part = out, 0
    end
    out, since = out - lease.units, max(lease.ends_at, since)
  end
  whole, part = leaked(limit, whole, part, minus(at, since))
  if whole < out then
    return out, 0
  end
  return whole, part
end

-- What is still owed at `at`, which is not before the state's last change.
local function repaid(limit, state, at)
  if state.leases then
    return repaid_on_lease(limit, state, at)
  end
  return leaked(limit, state.whole, state.part, at - state.changed_at)
end

-- How long a debt takes to fall to `target`, where leases are out from `at` on.
local function time_on_lease(limit, whole, part, target, leases, at)
  local since, out = at, units_out(leases)
  for _, lease in ipairs(leases) do
    if out <= target then
      local time = whole < target and 0 or mul_add_div_ceil(whole - target, limit.window, part, limit.count)
      if since + time <= lease.ends_at then
        return minus(since + time, at)
      end
    end
    whole, part = leaked(limit, whole, part, lease.ends_at - since)
    if whole < out then
      whole, part = out, 0
    end
    out, since = out - lease.units, lease.ends_at
  end
  local time = whole < target and 0 or mul_add_div_ceil(whole - target, limit.window, part, limit.count)
  return min(minus(since + time, at), MAX)
end

-- How long a debt takes to fall to `target`, which it is above; rounded up.
local function time_to_repay(limit, whole, part, target, leases, at)
  if leases then
    return time_on_lease(limit, whole, part, target, leases, at)
  end
  return min(mul_add_div_ceil(whole - target, limit.window, part, limit.count), MAX)
end

local function moved_back(state, by)
  if by == 0 then
    return state
  end
  local leases
  if state.leases then
    leases = {}
    for index, lease in ipairs(state.leases) do
      leases[index] = { id = lease.id, units = lease.units, ends_at = minus(lease.ends_at, by) }
    end
  end
  return state_of(state.whole, state.part, minus(state.changed_at, by), leases)
end

-- What is owed now, as a state of its own.
local function as_of(limit, state, now)
  state = moved_back(state, set_back(state.changed_at, now, limit.to_full))
  local at = max(now, state.changed_at)
  local whole, part = repaid(limit, state, at)
  return state_of(whole, part, at, state.leases and live(state.leases, at))
end

-- The verdict on `cost`, when that much is owed as of `at`: whether it is allowed, when to try
-- again, and how long the request is to be held.
local function verdict(limit, whole, part, cost, now, leases, at)
  if cost == 0 then
    return true, NOW, 0
  end
  if cost > limit.burst then
    return false, NEVER, 0
  end
  if ceil(whole, part) + cost <= limit.burst then
    if limit.hold < 0 then
      return true, NOW, time_to_repay(limit, whole, part, 0, leases, at)
    end
    return true, NOW, 0
  end
  local wait = plus(at - now, time_to_repay(limit, whole, part, limit.burst - cost, leases, at))
  if limit.hold < 0 then
    return false, wait, 0
  elseif wait <= limit.hold then
    return true, NOW, wait
  end
  return false, wait - limit.hold, 0
end

function bucket.fresh()
  return state_of(0, 0, 0)
end

-- Decides one charge and returns the state to keep.
--
-- A denied charge adds no debt; the state it returns is still to be kept, as it may have been moved
-- to the present.
function bucket.decide(limit, state, cost, now)
  state = moved_back(state, set_back(state.changed_at, now, limit.to_full))
  local at = max(now, state.changed_at)
  local whole, part = repaid(limit, state, at)
  local leases = state.leases and live(state.leases, at)

  local allowed, retry, delay = verdict(limit, whole, part, cost, now, leases, at)
  if allowed then
    whole = whole + cost
  end
  local reset_at = now
  if whole > 0 or part > 0 then
    reset_at = plus(at, time_to_repay(limit, whole, part, 0, leases, at))
  end
  local outcome = { allowed and 1 or 0, minus(limit.burst, ceil(whole, part)), retry, reset_at, delay, at }
  if allowed and cost > 0 then
    return outcome, state_of(whole, part, at, leases)
  end
  return outcome, state
end

-- Adds a cost that is known only afterwards, up to a full bucket of debt.
function bucket.settle(limit, state, cost, now)
  local after = as_of(limit, state, now)
  if cost <= minus(limit.burst, ceil(after.whole, after.part)) then
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
  local after = as_of(limit, state, now)
  local whole, part = leaked(limit, cost, 0, minus(after.changed_at, charged_at))
  after.whole, after.part = less(after.whole, after.part, whole, part, limit.window)
  local out = after.leases and units_out(after.leases) or 0
  if after.whole < out then
    after.whole, after.part = out, 0
  end
  return after
end

-- The lease with this id, taken out of the list; nil if it is not there.
local function take_out(state, id)
  for index, lease in ipairs(state.leases or {}) do
    if lease.id == id then
      table.remove(state.leases, index)
      if #state.leases == 0 then
        state.leases = nil
      end
      return lease
    end
  end
end

local function put_in(state, lease)
  local leases = state.leases or {}
  local index = #leases + 1
  while index > 1 and leases[index - 1].ends_at > lease.ends_at do
    index = index - 1
  end
  table.insert(leases, index, lease)
  state.leases = leases
end

-- Takes up to `want.units` in advance, at least `cost`, until `now + want.lasts` at the latest. The
-- unused units of the lease `want.previous`, of which `want.used` were used, are among them.
-- Returns the outcome, the state to keep, the units now out on `want.id`, and their end. Whatever
-- the outcome, the previous lease is no more.
function bucket.lease(limit, state, cost, want, now)
  local after = as_of(limit, state, now)
  local at = after.changed_at
  local previous = take_out(after, want.previous)
  local carried = previous and minus(previous.units, want.used) or 0
  -- The bucket as if the carried units had never been taken.
  local without = state_of(after.whole - carried, after.part, at, after.leases)
  local room = minus(limit.burst, ceil(without.whole, without.part))
  local units = max(carried, min(want.units, room))
  if units < cost or units == 0 then
    local outcome = bucket.decide(limit, without, cost, now)
    if carried == 0 then
      return outcome, after, 0, at
    end
    put_in(after, { id = want.id, units = carried, ends_at = previous.ends_at })
    return outcome, after, carried, previous.ends_at
  end
  local ends_at = plus(at, want.lasts)
  after.whole = without.whole + units
  put_in(after, { id = want.id, units = units, ends_at = ends_at })
  local outcome = bucket.decide(limit, after, 0, now)
  return outcome, after, units, ends_at
end

-- Ends a lease of which `unused` units were never used. Nothing happens after its end.
function bucket.return_lease(limit, state, id, unused, now)
  local after = as_of(limit, state, now)
  local lease = take_out(after, id)
  if lease then
    after.whole = after.whole - min(unused, lease.units)
  end
  return after
end

return bucket
