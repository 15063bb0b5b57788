-- Units of a bucket that instances have taken in advance, to decide from without asking.
--
-- They are debt from the moment they are taken. A lease is { id, units, ends_at }; a state's leases
-- are in the order in which they end. Until the end of each, debt does not fall below what is out,
-- as its units may still be used; from then on they are debt like any other. So what is left in the
-- bucket and what is out never add up to more than the burst.

local bucket_leases = {}

local bucket = module('bucket')
local leaked = bucket.leaked
local max, min = math.max, math.min

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

-- The debt at `at`, and the leases that are out then.
function bucket_leases.repaid(limit, state, at)
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
    whole, part = out, 0
  end
  return whole, part, live(state.leases, at)
end

-- How long a debt takes to fall to `target`, where leases are out from `at` on.
function bucket_leases.time_to_repay(limit, whole, part, target, leases, at)
  local function time()
    return whole < target and 0 or mul_add_div_ceil(whole - target, limit.window, part, limit.count)
  end
  local since, out = at, units_out(leases)
  for _, lease in ipairs(leases) do
    if out <= target and since + time() <= lease.ends_at then
      break
    end
    whole, part = leaked(limit, whole, part, lease.ends_at - since)
    if whole < out then
      whole, part = out, 0
    end
    out, since = out - lease.units, lease.ends_at
  end
  return min(minus(since + time(), at), MAX)
end

function bucket_leases.moved_back(leases, by)
  local moved = {}
  for index, lease in ipairs(leases) do
    moved[index] = { id = lease.id, units = lease.units, ends_at = minus(lease.ends_at, by) }
  end
  return moved
end

-- Raises a debt that something else has lowered to what is out.
function bucket_leases.keep_floor(state)
  local out = units_out(state.leases)
  if state.whole < out then
    state.whole, state.part = out, 0
  end
end

-- The lease with this id, taken out of the state's list; nil if it is not there.
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
-- Returns the outcome, the state to keep, the units now out on `want.id`, their end, and how long it
-- takes until `cost` more can be taken, if these are used; no time if that has to be asked for. If there
-- are no more than the cost, all of them are used, and nothing is out on lease. Whatever the outcome, the
-- previous lease is no more.
function bucket_leases.lease(limit, state, cost, want, now)
  local after = bucket.as_of(limit, state, now)
  local at = after.changed_at
  local previous = take_out(after, want.previous)
  local carried = previous and minus(previous.units, want.used) or 0
  -- The bucket as if the carried units had never been taken.
  local without = bucket.state_of(after.whole - carried, after.part, at, after.leases)
  local owed = without.part > 0 and without.whole + 1 or without.whole
  local units = max(carried, min(want.units, minus(limit.burst, owed)))
  if units < cost or units == 0 then
    local outcome = bucket.decide(limit, without, cost, now)
    if carried == 0 then
      return outcome, after, 0, at, outcome[RETRY]
    end
    put_in(after, { id = want.id, units = carried, ends_at = previous.ends_at })
    return outcome, after, carried, previous.ends_at, outcome[RETRY]
  end
  local ends_at = plus(at, want.lasts)
  after.whole = without.whole + units
  local more = bucket.decide(limit, after, cost, now)[RETRY]
  if units == cost then
    return bucket.decide(limit, after, 0, now), after, units, at, more
  end
  put_in(after, { id = want.id, units = units, ends_at = ends_at })
  if bucket.decide(limit, after, cost, now)[RETRY] ~= more then
    -- The lease itself would keep the debt up for longer, and ends when Redis is asked.
    more = NOW
  end
  local outcome = bucket.decide(limit, after, 0, now)
  return outcome, after, units, ends_at, more
end

-- Ends a lease of which `unused` units were never used. Nothing happens after its end.
function bucket_leases.return_lease(limit, state, id, unused, now)
  local after = bucket.as_of(limit, state, now)
  local lease = take_out(after, id)
  if lease then
    after.whole = after.whole - min(unused, lease.units)
  end
  return after
end

return bucket_leases
