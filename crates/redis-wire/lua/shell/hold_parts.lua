-- The parts of a stored reservation, each a text with what it takes to settle it:
-- `<index> <cost> <flows from> <taken at> <unit cost> <unit> <limit> <counter> <label>`. The limit is its arguments,
-- joined by commas; `held` in front of them means that the part is given back if it is never settled.

local parts = {}

local FIELDS = {
  bucket = { 'count', 'window', 'burst', 'to_full', 'hold' },
  cell = { 'count', 'window', 'burst', 'to_full', 'hold' },
  sliding_window_slots = { 'count', 'window', 'slot', 'counted' },
  sliding_window_counter = { 'count', 'window' },
  sliding_window_log = { 'count', 'window' },
  concurrency = { 'holders', 'lease_ttl' },
  fixed_window = { 'count', 'window', 'anchor' },
}

function parts.write(task)
  return format('%s %.0f %.0f %.0f %s %s %s %s %s', task.index, task.own, task.charged_at, task.taken_at,
    task.unit_cost, task.unit, task.limit_text, task.key, task.label)
end

local function limit_of(text, key)
  local words = {}
  for word in string.gmatch(text, '[^,]+') do
    words[#words + 1] = word
  end
  local has_held = words[1] == 'held'
  if has_held then
    table.remove(words, 1)
  end
  local limit = { kind = words[1], has_held = has_held }
  for index, field in ipairs(FIELDS[limit.kind] or unreadable(key)) do
    local word = words[index + 1] or unreadable(key)
    limit[field] = tonumber(word) or word
  end
  limit.from_first = limit.anchor == 'first_request'
  limit.has_companion = limit.kind == 'concurrency'
  return limit
end

-- A part as a task that can be adjusted; its state is not read yet.
function parts.read(text, key)
  local index, cost, charged_at, taken_at, unit_cost, unit, limit, counter =
    match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (%S+) (%S+) ')
  if not counter then
    unreadable(key)
  end
  limit = limit_of(limit, key)
  return {
    index = index,
    text = text,
    form = module(limit.kind .. '_form'),
    limit = limit,
    cost = whole_number(cost) or unreadable(key),
    charged_at = whole_number(charged_at) or unreadable(key),
    taken_at = whole_number(taken_at) or unreadable(key),
    unit_cost = whole_number(unit_cost) or unreadable(key),
    unit = unit,
    key = counter,
    companion = limit.has_companion and counter .. ':leases' or nil,
    first = 1,
  }
end

-- Whether the counter was reset after the part was taken.
function parts.is_reset(part)
  if part.companion then
    return false
  end
  local noted = whole_number(call('GET', part.key .. ':reset') or nil)
  return noted and part.taken_at <= noted
end

-- Lets the permit of a part last its whole time again, but not beyond the reservation.
function parts.renew(part, step, ends)
  local view = module('leases').open(part.key, part.companion)
  local ends_at, cost, ttl = view.find(step.lease)
  local at = max(step.now, view.changed_at)
  if ends_at and ends_at > at then
    view.remove(step.lease, cost)
    view.changed(at)
    view.insert(step.lease, cost, ttl, plus(at, min(part.limit.lease_ttl, minus(ends, step.now))))
    view.save(step, (view.entry(view.length() - 1)))
  end
end

return parts
