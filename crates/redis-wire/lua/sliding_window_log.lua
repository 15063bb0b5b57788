-- Sliding window log: the time and cost of every admitted request.
-- Mirror of crates/core/src/algorithm/sliding_window_log.rs: same names, same order. Entries hold
-- running totals, which start over at 2^50; only differences count.
--
-- limit: count, window
-- log: a view of the entries, oldest first, each an instant of its own:
--   length()               how many there are
--   entry(rank)            the time, running total and own cost of one, from rank 0
--   up_to(time)            how many were made up to then
--   move(by)               moves all entries back in time
--   forget(count)          removes the oldest
--   replace(rank, entries) puts these, as { time, total, cost }, in place of all from that rank on

local sliding_window_log = {}

local max, min = math.max, math.min

local WRAPS_AT = 1125899906842624

local function changed_at_of(log)
  local length = log.length()
  return length == 0 and 0 or (log.entry(length - 1))
end

-- What counts at `at`, with every entry moved back `by`: the first rank, the total before it, and
-- how much. An entry that is exactly `window` old has left.
local function live(limit, log, at, by)
  local length = log.length()
  local first = at >= limit.window and log.up_to(at - limit.window + by) or 0
  if first >= length then
    return length, 0, 0
  end
  local _, first_total, first_cost = log.entry(first)
  local _, last_total = log.entry(length - 1)
  local before = (first_total - first_cost) % WRAPS_AT
  return first, before, (last_total - before) % WRAPS_AT
end

-- The time of the entry with which at least `excess` of what counts will have left.
local function frees(log, first, before, excess)
  local low, high = first, log.length()
  while low < high do
    local middle = low + ((high - low) - (high - low) % 2) / 2
    local _, total = log.entry(middle)
    if (total - before) % WRAPS_AT < excess then
      low = middle + 1
    else
      high = middle
    end
  end
  return low < log.length() and (log.entry(low)) or 0
end

-- Decides one charge and changes nothing; `charge` takes what was allowed.
function sliding_window_log.decide(limit, log, cost, now)
  local changed_at = changed_at_of(log)
  local by = set_back(changed_at, now, limit.window)
  local at = max(now, minus(changed_at, by))
  local first, before, used = live(limit, log, at, by)

  local allowed, retry = false, NEVER
  if cost == 0 or used + cost <= limit.count then
    allowed, retry = true, NOW
  elseif cost <= limit.count then
    local excess = used - (limit.count - cost)
    retry = minus(plus(minus(frees(log, first, before, excess), by), limit.window), now)
  end
  local taken = allowed and cost or 0
  local reset_at = now
  if taken > 0 then
    reset_at = plus(at, limit.window)
  elseif used > 0 then
    reset_at = plus(minus(changed_at, by), limit.window)
  end
  return outcome_of(allowed, retry, limit.count, used + taken, reset_at, at)
end

-- Moves the log to the present if its clock has been set back since.
function sliding_window_log.rebase(limit, log, now)
  local by = set_back(changed_at_of(log), now, limit.window)
  if by > 0 then
    log.move(by)
  end
end

-- Charges `cost`, which was allowed, and forgets what has left the window.
function sliding_window_log.charge(limit, log, cost, now)
  sliding_window_log.rebase(limit, log, now)
  local length = log.length()
  local changed_at, total, last_cost = 0, 0, 0
  if length > 0 then
    changed_at, total, last_cost = log.entry(length - 1)
  end
  local at = max(now, changed_at)
  local first = live(limit, log, at, 0)
  if first > 0 then
    log.forget(first)
    length = length - first
  end
  if cost > 0 then
    total = (total + cost) % WRAPS_AT
    if length > 0 and changed_at == at then
      log.replace(length - 1, { { at, total, last_cost + cost } })
    else
      log.replace(length, { { at, total, cost } })
    end
  end
end

-- Adds a cost that is known only afterwards, up to the limit.
function sliding_window_log.settle(limit, log, cost, now)
  local room = sliding_window_log.decide(limit, log, 0, now)[REMAINING]
  sliding_window_log.charge(limit, log, min(cost, room), now)
end

-- Takes back `cost` from the entry that was made as of `charged_at`, if it is still there.
function sliding_window_log.give_back(limit, log, cost, charged_at, now)
  sliding_window_log.rebase(limit, log, now)
  local length = log.length()
  local index = charged_at > 0 and log.up_to(charged_at - 1) or 0
  if index >= length then
    return
  end
  local made_at, total, own = log.entry(index)
  if made_at ~= charged_at or cost == 0 then
    return
  end
  local given = min(cost, own)
  local entries = {}
  if cost < own then
    entries[1] = { made_at, (total - given) % WRAPS_AT, own - given }
  end
  for rank = index + 1, length - 1 do
    local later_at, later_total, later_cost = log.entry(rank)
    entries[#entries + 1] = { later_at, (later_total - given) % WRAPS_AT, later_cost }
  end
  log.replace(index, entries)
end

-- How much `give_back` takes back of what counts.
function sliding_window_log.given_back(limit, log, cost, charged_at, now)
  local changed_at = changed_at_of(log)
  local by = set_back(changed_at, now, limit.window)
  local at = max(now, minus(changed_at, by))
  local length = log.length()
  local index = charged_at > 0 and log.up_to(charged_at - 1 + by) or 0
  if index >= length or minus(at, charged_at) >= limit.window then
    return 0
  end
  local made_at, _, own = log.entry(index)
  return minus(made_at, by) == charged_at and min(cost, own) or 0
end

return sliding_window_log
