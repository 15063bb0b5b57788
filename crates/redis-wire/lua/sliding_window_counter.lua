-- Sliding window counter: the present window's count, and as much of the one before as still reaches
-- into the last `window` of time.
-- Mirror of crates/core/src/algorithm/sliding_window_counter.rs: same names, same order.
--
-- limit: count, window
-- state: changed_at, current, previous

local sliding_window_counter = {}

local calendar = module('calendar')

local max, min = math.max, math.min

local function elapsed_in(limit, at)
  return calendar.elapsed_in(limit.window, at)
end

local function start_of(limit, at)
  return minus(at, elapsed_in(limit, at))
end

local function state_of(changed_at, current, previous)
  return { changed_at = changed_at, current = current, previous = previous }
end

-- What counts at `state.changed_at`.
local function used_in(limit, state)
  local left = limit.window - elapsed_in(limit, state.changed_at)
  local weighted = mul_div(state.previous, left, limit.window)
  return state.current + weighted
end

-- How much of a window may be left for the share of the `previous` one to be within `room`.
local function left_when(limit, previous, room)
  -- floor(previous * left / window) <= room  <=>  previous * left < (room + 1) * window
  return min(mul_add_div_ceil(room + 1, limit.window, 0, previous) - 1, MAX)
end

-- The first instant after `state.changed_at` at which no more than `room` is used, if nothing is
-- charged until then. More than `room` is used now.
local function falls_to(limit, state, room)
  local ends_at = plus(state.changed_at, limit.window - elapsed_in(limit, state.changed_at))
  if state.current <= room then
    -- The previous window's share has to fall to what the current one leaves.
    return minus(ends_at, left_when(limit, state.previous, room - state.current))
  end
  -- The current window has to become the previous one first.
  return plus(ends_at, minus(limit.window, left_when(limit, state.current, room)))
end

-- The state as it stands at `at`, which is not before its last change.
local function as_of(limit, state, at)
  local start = start_of(limit, at)
  if state.changed_at >= start then
    return state_of(at, state.current, state.previous)
  elseif start - state.changed_at <= limit.window then
    return state_of(at, 0, state.current)
  end
  return state_of(at, 0, 0)
end

-- The state moved to the present. What was used stays used: elsewhere in its window the older count
-- would weigh less, so what it weighs is counted with the newer one.
local function moved_back(limit, state, by)
  if by == 0 then
    return state
  end
  return state_of(minus(state.changed_at, by), used_in(limit, state), 0)
end

local function present(limit, state, now)
  state = moved_back(limit, state, set_back(state.changed_at, now, limit.window))
  return as_of(limit, state, max(now, state.changed_at))
end

function sliding_window_counter.fresh()
  return state_of(0, 0, 0)
end

-- Decides one charge and returns the state to keep.
function sliding_window_counter.decide(limit, state, cost, now)
  state = moved_back(limit, state, set_back(state.changed_at, now, limit.window))
  local at = max(now, state.changed_at)
  local kept = as_of(limit, state, at)
  local used = used_in(limit, kept)

  local allowed, retry = false, NEVER
  if cost == 0 or used + cost <= limit.count then
    allowed, retry = true, NOW
  elseif cost <= limit.count then
    retry = minus(falls_to(limit, kept, limit.count - cost), now)
  end
  local next = state
  if allowed and cost > 0 then
    kept.current = kept.current + cost
    used = used + cost
    next = kept
  end
  local reset_at = used == 0 and now or falls_to(limit, kept, 0)
  return outcome_of(allowed, retry, limit.count, used, reset_at, at), next
end

-- Adds a cost that is known only afterwards, up to the limit.
function sliding_window_counter.settle(limit, state, cost, now)
  local after = present(limit, state, now)
  after.current = after.current + min(cost, minus(limit.count, used_in(limit, after)))
  return after
end

-- Takes back `cost` in the window in which it was charged, as of `charged_at`, while that window
-- still counts.
function sliding_window_counter.give_back(limit, state, cost, charged_at, now)
  local after = present(limit, state, now)
  local start = start_of(limit, after.changed_at)
  if start_of(limit, charged_at) == start then
    after.current = minus(after.current, cost)
  elseif charged_at < start and start - charged_at <= limit.window then
    after.previous = minus(after.previous, cost)
  end
  return after
end

-- How much `give_back` takes back in its window.
function sliding_window_counter.given_back(limit, state, cost, charged_at, now)
  local before = present(limit, state, now)
  local after = sliding_window_counter.give_back(limit, state, cost, charged_at, now)
  return (before.current - after.current) + (before.previous - after.previous)
end

-- The end of the window that holds `at`.
function sliding_window_counter.ends_at(limit, _, at)
  return plus(at, limit.window - elapsed_in(limit, at))
end

return sliding_window_counter
