-- The parts of a stored reservation, in the fields of its record, each with what it takes to settle it. A part's number
-- and: nothing, `<index> <cost> <limit>` and, unless it was charged when the reservation was made, `<flows from> <taken
-- at>`; `u`, `<unit> <unit cost>`, unless that is one request; `k`, what is in the braces of the counter, unless that is
-- as in the part before; `c`, the rest of the counter; `l`, the label. Each is short, so that Redis keeps the record in
-- one piece of memory.
--
-- The limit is its arguments, joined by commas; `held` in front of them means that the part is given back if it is never
-- settled.

local parts = {}

local KINDS = {
  tb = 'bucket',
  cell = 'cell',
  fw = 'fixed_window',
  swc = 'sliding_window_counter',
  sws = 'sliding_window_slots',
  log = 'sliding_window_log',
  con = 'concurrency',
}
local FIELDS = {
  bucket = { 'count', 'window', 'burst', 'to_full', 'hold' },
  cell = { 'count', 'window', 'burst', 'to_full', 'hold' },
  sliding_window_slots = { 'count', 'window', 'slot', 'counted' },
  sliding_window_counter = { 'count', 'window' },
  sliding_window_log = { 'count', 'window' },
  concurrency = { 'holders', 'lease_ttl' },
  fixed_window = { 'count', 'window', 'anchor' },
}
local ONE_REQUEST = 'requests 1'

-- A counter in three pieces: in front of the braces, in them, and after.
local function pieces(counter)
  return match(counter, '^(.-){(.-)}(.*)$')
end

-- Adds the fields of a part to those of a record that was made `at` a time; `before` is what is in the braces of the
-- part before. Returns what is in those of this part.
function parts.write(task, number, fields, at, before)
  local function add(kind, text)
    fields[#fields + 1], fields[#fields + 2] = number .. kind, text
  end
  local text = format('%s %.0f %s', task.index, task.own, task.limit_text)
  if task.charged_at ~= at or task.taken_at ~= at then
    text = format('%s %.0f %.0f', text, task.charged_at, task.taken_at)
  end
  add('', text)
  local unit = task.unit .. ' ' .. task.unit_cost
  if unit ~= ONE_REQUEST then
    add('u', unit)
  end
  local _, tag, rest = pieces(task.key)
  if tag ~= before then
    add('k', tag)
  end
  add('c', rest)
  if task.label ~= '' then
    add('l', task.label)
  end
  return tag
end

-- What it takes to give a part back: `<cost> <limit> <flows from>` and, if that is another, `<taken at>`.
function parts.write_held(task)
  local limit = string.gsub(task.limit_text, '^held,', '')
  local text = format('%.0f %s %.0f', task.own, limit, task.charged_at)
  return task.taken_at == task.charged_at and text or format('%s %.0f', text, task.taken_at)
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
  local limit = { kind = KINDS[words[1]] or unreadable(key), has_held = has_held }
  for index, field in ipairs(FIELDS[limit.kind]) do
    local word = words[index + 1] or unreadable(key)
    limit[field] = tonumber(word) or word
  end
  limit.from_first = limit.anchor == 'first_request'
  limit.has_companion = limit.kind == 'concurrency'
  return limit
end

-- A task that can be adjusted; its state is not read yet.
local function task_of(cost, limit, charged_at, taken_at, counter, key)
  limit = limit_of(limit, key)
  return {
    form = module(limit.kind .. '_form'),
    limit = limit,
    cost = whole_number(cost) or unreadable(key),
    charged_at = whole_number(charged_at) or unreadable(key),
    taken_at = whole_number(taken_at) or unreadable(key),
    key = counter,
    companion = limit.has_companion and counter .. ':leases' or nil,
    first = 1,
  }
end

-- All parts of the record at `key` as tasks.
function parts.read(record, key)
  local read, prefix, tag = {}, pieces(key), nil
  for number = 1, record.n do
    local text = record[tostring(number)] or unreadable(key)
    local index, cost, limit, times = match(text, '^(%d+) (%d+) (%S+)(.*)$')
    local charged_at, taken_at = match(times or '', '^ (%d+) (%d+)$')
    local unit, unit_cost = match(record[number .. 'u'] or ONE_REQUEST, '^(%S+) (%d+)$')
    tag = record[number .. 'k'] or tag
    local rest = record[number .. 'c']
    if not (index and unit and tag and rest) then
      unreadable(key)
    end
    local counter = prefix .. '{' .. tag .. '}' .. rest
    local part = task_of(cost, limit, charged_at or record.at, taken_at or record.at, counter, key)
    part.index, part.text, part.label = index, text, record[number .. 'l'] or ''
    part.unit, part.unit_cost = unit, whole_number(unit_cost) or unreadable(key)
    read[number] = part
  end
  return read
end

-- A part that is held next to its counter.
function parts.read_held(text, counter)
  local cost, limit, charged_at, more = match(text, '^(%d+) (%S+) (%d+)(.*)$')
  if not cost then
    unreadable(counter .. ':held:parts')
  end
  return task_of(cost, limit, charged_at, match(more, '%d+') or charged_at, counter, counter .. ':held:parts')
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
