-- Sliding window slots: a counter for each part of the window.
-- Mirror of crates/core/src/algorithm/sliding_window_slots.rs: same names, same order. The ring of
-- memory is a table of counts by the slot's number here.
--
-- limit: count, window, slot, counted
-- state: changed_at, counts (slot number to count; a slot that is not there counts nothing)

local sliding_window_slots = {}

local max, min = math.max, math.min

local function number(limit, at)
  return (at - at % limit.slot) / limit.slot
end

-- How many slots still count at `at`, from the one of `changed_at` back.
local function ages(limit, changed_at, at)
  return minus(limit.counted, number(limit, at) - number(limit, changed_at))
end

-- What counts at `at`, when the state was last changed at `changed_at`, which may have been moved.
local function used_in(limit, slots, changed_at, at)
  local count, newest = ages(limit, changed_at, at), number(limit, slots.changed_at)
  local used = 0
  for slot, cost in pairs(slots.counts) do
    if newest - slot < count then
      used = used + cost
    end
  end
  return used
end

-- When the slot that is `age` slots before the one of `changed_at` stops counting.
local function stops_counting(limit, changed_at, age)
  return plus(0, (number(limit, changed_at) + limit.counted - age) * limit.slot)
end

-- The first instant at which at least `excess` of what counts at `at` has stopped counting.
local function frees(limit, slots, changed_at, at, excess)
  local newest, freed = number(limit, slots.changed_at), 0
  for age = ages(limit, changed_at, at) - 1, 0, -1 do
    freed = freed + (slots.counts[newest - age] or 0)
    if freed >= excess then
      return stops_counting(limit, changed_at, age)
    end
  end
  return at
end

function sliding_window_slots.fresh()
  return { changed_at = 0, counts = {} }
end

-- Decides one charge and changes nothing; `charge` takes what was allowed.
function sliding_window_slots.decide(limit, slots, cost, now)
  local changed_at = minus(slots.changed_at, set_back(slots.changed_at, now, limit.window))
  local at = max(now, changed_at)
  local used = used_in(limit, slots, changed_at, at)

  local allowed, retry = false, NEVER
  if cost == 0 or used + cost <= limit.count then
    allowed, retry = true, NOW
  elseif cost <= limit.count then
    local excess = used - (limit.count - cost)
    retry = minus(frees(limit, slots, changed_at, at, excess), now)
  end
  local taken = allowed and cost or 0
  local reset_at = now
  if taken > 0 then
    reset_at = stops_counting(limit, at, 0)
  elseif used > 0 then
    reset_at = frees(limit, slots, changed_at, at, used)
  end
  return outcome_of(allowed, retry, limit.count, used + taken, reset_at, at)
end

-- Moves the state to the present if its clock has been set back since.
function sliding_window_slots.rebase(limit, slots, now)
  local by = set_back(slots.changed_at, now, limit.window)
  if by == 0 then
    return
  end
  local changed_at = minus(slots.changed_at, by)
  local shift = number(limit, slots.changed_at) - number(limit, changed_at)
  local counts = {}
  for slot, cost in pairs(slots.counts) do
    counts[slot - shift] = cost
  end
  slots.changed_at, slots.counts = changed_at, counts
end

-- Charges `cost`, which was allowed, and forgets the slots that have stopped counting.
function sliding_window_slots.charge(limit, slots, cost, now)
  sliding_window_slots.rebase(limit, slots, now)
  slots.changed_at = max(now, slots.changed_at)
  local newest = number(limit, slots.changed_at)
  for slot in pairs(slots.counts) do
    if newest - slot >= limit.counted then
      slots.counts[slot] = nil
    end
  end
  slots.counts[newest] = (slots.counts[newest] or 0) + cost
end

-- Adds a cost that is known only afterwards, up to the limit.
function sliding_window_slots.settle(limit, slots, cost, now)
  local room = sliding_window_slots.decide(limit, slots, 0, now)[REMAINING]
  sliding_window_slots.charge(limit, slots, min(cost, room), now)
end

-- Takes back `cost` in the slot in which it was charged, as of `charged_at`, while it counts.
function sliding_window_slots.give_back(limit, slots, cost, charged_at, now)
  sliding_window_slots.rebase(limit, slots, now)
  local newest, charged = number(limit, slots.changed_at), number(limit, charged_at)
  if charged <= newest and newest - charged < limit.counted and slots.counts[charged] then
    slots.counts[charged] = minus(slots.counts[charged], cost)
  end
end

-- How much `give_back` takes back of what counts.
function sliding_window_slots.given_back(limit, slots, cost, charged_at, now)
  local changed_at = minus(slots.changed_at, set_back(slots.changed_at, now, limit.window))
  local newest, charged = number(limit, changed_at), number(limit, charged_at)
  if charged > newest or number(limit, max(now, changed_at)) - charged >= limit.counted then
    return 0
  end
  return min(cost, slots.counts[number(limit, slots.changed_at) - (newest - charged)] or 0)
end

-- The end of the slot that holds `at`.
function sliding_window_slots.ends_at(limit, _, at)
  return plus(0, (number(limit, at) + 1) * limit.slot)
end

return sliding_window_slots
