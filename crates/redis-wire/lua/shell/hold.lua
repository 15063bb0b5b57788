-- Stored reservations: a hash for each, written by the step that charges, with what it takes to settle it later.
--
-- Fields: `at` and `ends`, `estimate`, `n` and its parts by number, see hold_parts.lua; `supplied`, the key of the set in
-- which it ends, if its time was supplied; `others`, the records of the same reservation in other slots, or `other` if it
-- is one of those. A settled one has `settled`, `until`, and `<number>r` for each part.
--
-- Invariant: an estimate is given back once. The call that settles, and that which ends it, take the part or the record
-- out of its queue (held.lua, ends.lua), and change the charge only if it was in there.

local hold = {}

local ops, parts, held, ends = module('ops'), module('hold_parts'), module('held'), module('ends')

-- More than any limit can grant.
local MOST = 1125899906842624

-- What is said about a reservation that is not there, is settled otherwise, or costs something else.
local UNKNOWN, OTHER_KIND, OTHER_COST, SETTLED, REPEATED = 0, 1, 2, 3, 4

local A_MINUTE = 60000000
-- How much longer than the reservation the records in other slots are kept, so that settling can be repeated.
local LONGER = 120000000

-- Charges each group, and writes the record of those that are allowed if the first is. Arguments: the time to live,
-- the estimate, the records in other slots, how many groups there are, whether this is one of the others, and whether
-- it is written without a part: if it is `made`, or `always`.
-- Answers all outcomes, how many parts were written, and when the reservation ends.
function hold.reserve(step)
  local key, estimate, others = step.keys[1], step.args[2], step.args[3]
  local ttl, groups, is_other = tonumber(step.args[1]), tonumber(step.args[4]), step.args[5] == 'other'
  -- Groups that are charged later end with the first.
  local known = call('HMGET', key, 'n', 'at', 'ends')
  local count, at = tonumber(known[1] or 0), whole_number(known[2]) or step.now
  local ends_at = whole_number(known[3]) or plus(step.now, ttl)
  if step.is_supplied then
    stays(step.ends)
  end
  for _, task in ipairs(step.tasks) do
    if task.companion then
      -- The permit ends with the reservation.
      local limit = task.limit
      task.limit = { kind = limit.kind, holders = limit.holders, lease_ttl = min(limit.lease_ttl, ttl) }
    elseif task.limit.has_held then
      stays(task.key)
    end
  end
  local outcomes, is_allowed, is_made = {}, {}, true
  for group = 1, groups do
    is_allowed[group] = ops.charge_tasks(step, group, outcomes)
    if group == 1 and not is_allowed[1] then
      is_made, step.lease = false, ''
    end
  end
  local fields, written, tag = {}, 0, nil
  for index, task in ipairs(step.tasks) do
    if is_made and is_allowed[task.group] and task.own > 0 then
      local outcome = outcomes[index]
      if outcome then
        task.taken_at = outcome[AT]
        task.charged_at = plus(outcome[AT], outcome[DELAY])
      end
      written = written + 1
      tag = parts.write(task, count + written, fields, at, tag)
      if task.limit.has_held and not step.is_supplied then
        held.add(task, step.lease, ends_at, outcome and outcome[RESET_AT] or ends_at)
      end
    end
  end
  local numbers = {}
  for index = 1, #step.tasks do
    for _, number in ipairs(outcomes[index] or {}) do
      numbers[#numbers + 1] = number
    end
  end
  numbers[#numbers + 1], numbers[#numbers + 2] = written, ends_at
  local is_needed = step.args[6] == 'always' or step.args[6] == 'made' and is_made
  if written == 0 and not is_needed then
    return numbers
  end
  local function add(field, value)
    fields[#fields + 1], fields[#fields + 2] = field, value
  end
  add('at', format('%.0f', at))
  add('ends', format('%.0f', ends_at))
  add('estimate', estimate)
  add('n', count + written)
  if others ~= '' then
    add('others', others)
  end
  if is_other then
    add('other', 1)
  end
  if step.is_supplied then
    add('supplied', step.ends)
    ends.add(step.ends, key, ends_at)
  end
  call('HSET', key, unpack(fields))
  expire(step, key, is_other and plus(ends_at, LONGER) or ends_at)
  return numbers
end

-- The record at `key`; nil if there is none.
local function load(key)
  local fields = call('HGETALL', key)
  if #fields == 0 then
    return nil
  end
  local record = {}
  for index = 1, #fields, 2 do
    record[fields[index]] = fields[index + 1]
  end
  if not (record.at and record.ends and record.n and record.estimate) then
    unreadable(key)
  end
  record.at, record.ends, record.n = whole_number(record.at), whole_number(record.ends), whole_number(record.n)
  record.parts = parts.read(record, key)
  return record
end

-- The record of a step, unless it has ended; nil then, and if there is none.
local function read(step)
  local record = load(step.keys[1])
  if not record then
    return nil
  end
  if record.supplied then
    -- It ends by such times alone, which remove it; and acts at its own unless the caller brings one.
    if not step.is_supplied then
      step.now, step.is_supplied = record.at, true
    end
    return record
  end
  -- The first record decides when it has ended.
  local ends_at = record.settled and whole_number(record['until']) or record.ends
  if record.other ~= '1' and ends_at <= time then
    return nil
  end
  return record
end

-- Reads the states of parts, all before one is written.
local function open_states(list)
  local entries = {}
  for _, part in ipairs(list) do
    entries[part.key] = entries[part.key] or part.form:open(part.key, part.limit, part.companion)
    part.entry = entries[part.key]
  end
end

-- Ends a reservation by a supplied time: what is to be given back is, as of its end, and its permits are released. The
-- record in another slot stays, so that settling can be repeated.
function hold.finish(key)
  local record = load(key)
  if not record then
    return
  end
  if not record.settled then
    local changed = {}
    for _, part in ipairs(record.parts) do
      if part.companion or part.limit.has_held and not parts.is_reset(part) then
        changed[#changed + 1] = part
      end
    end
    open_states(changed)
    local as_of = { now = record.ends, lease = match(key, '%x+$'), is_supplied = true }
    for _, part in ipairs(changed) do
      part.form.give_back(part, as_of)
    end
  end
  if record.other ~= '1' then
    call('DEL', key)
  end
end

-- All that is known of a record, as texts.
local function dump(code, record)
  local reply = { code, format('%.0f', record.at), format('%.0f', record.ends), record.estimate,
    record.settled and '1' or '0', record.settled or '', record.others or '' }
  for index, part in ipairs(record.parts) do
    local unit = part.unit .. ' ' .. format('%.0f', part.unit_cost)
    for _, text in ipairs({ part.text, unit, part.key, part.label, record[index .. 'r'] or '' }) do
      reply[#reply + 1] = text
    end
  end
  return reply
end

-- Costs by unit as a table, and the names in order; nil for one cost.
local function by_unit(text)
  if match(text, '^%d+$') then
    return nil
  end
  local costs, names = {}, {}
  for name, cost in string.gmatch(text, '([%w_]+)=(%d+)') do
    costs[name], names[#names + 1] = cost, name
  end
  return costs, names
end

-- The estimate, replaced by what was spent: a unit that is not named keeps its estimate.
local function settled_cost(estimate, actual)
  local costs, names = by_unit(estimate)
  if not costs then
    return actual or '0'
  end
  local spent, more = by_unit(actual or '')
  for _, name in ipairs(more) do
    if not costs[name] then
      names[#names + 1] = name
    end
  end
  table.sort(names)
  local words = {}
  for index, name in ipairs(names) do
    words[index] = name .. '=' .. (spent[name] or (actual and costs[name]) or '0')
  end
  return table.concat(words, ' ')
end

-- What a part costs after all.
local function cost_of(part, actual, spent)
  if not actual then
    return 0
  end
  local cost = actual
  if spent then
    cost = spent[part.unit]
  end
  return cost and min(tonumber(cost) * part.unit_cost, MOST) or part.cost
end

-- Settles a reservation. Arguments: `cancel`, or `cost` and what was spent; whether the record is removed; the numbers of
-- parts whose units the caller took from its lease, and puts back there itself.
function hold.settle(step)
  local key, is_by_clock = step.keys[1], not step.is_supplied
  local record = read(step)
  if not record then
    return { UNKNOWN }
  end
  local actual = step.args[1] == 'cost' and step.args[2] or nil
  local spent = actual and by_unit(actual)
  if actual and (spent ~= nil) ~= (by_unit(record.estimate) ~= nil) then
    return { OTHER_KIND }
  end
  local settled = settled_cost(record.estimate, actual)
  if record.settled then
    local is_same = record.settled == settled
    for index, part in ipairs(record.parts) do
      local cost = match(record[index .. 'r'] or '', '^(%d+) ')
      is_same = is_same and tonumber(cost) == cost_of(part, actual, spent)
    end
    return is_same and dump(REPEATED, record) or { OTHER_COST }
  end
  stays(key)
  open_states(record.parts)
  local to_lease = {}
  for number in string.gmatch(step.args[4] or '', '%d+') do
    to_lease[number] = true
  end
  for _, part in ipairs(record.parts) do
    if part.limit.has_held and is_by_clock then
      held.expire(part, step.lease)
    end
  end
  local is_open = not record.supplied or ends.remove(record.supplied, key)
  local adjust, results = module('adjust'), { 'settled', settled }
  for index, part in ipairs(record.parts) do
    local is_charged = not part.limit.has_held
      or is_open and (record.supplied ~= nil or held.remove(part, step.lease))
    local cost = cost_of(part, actual, spent)
    local is_reset, for_lease = parts.is_reset(part), 0
    if to_lease[part.index] and not is_reset then
      -- In Redis they stay charged: they are of the lease.
      for_lease = max(part.cost - cost, 0)
      cost = max(cost, part.cost)
    end
    local done = adjust(part, step, cost, is_reset, is_charged)
    cost = cost - for_lease
    local result = format('%.0f %.0f %.0f %.0f %.0f %.0f', cost, done[1] + for_lease, done[2], done[3],
      done[4] + for_lease, for_lease)
    record[index .. 'r'] = result
    results[#results + 1], results[#results + 2] = index .. 'r', result
  end
  record.settled = settled
  if step.args[3] == 'remove' then
    call('DEL', key)
  else
    -- By the time by which the reservation would have ended.
    local forgotten_at = plus(record.supplied and step.now or time, A_MINUTE)
    results[#results + 1], results[#results + 2] = 'until', format('%.0f', forgotten_at)
    call('HSET', key, unpack(results))
    expire({ is_supplied = record.supplied }, key, plus(time, A_MINUTE))
    if record.supplied and record.other ~= '1' then
      ends.add(record.supplied, key, forgotten_at)
    end
  end
  return dump(SETTLED, record)
end

-- Lets a reservation last longer. Arguments: for how long, and at most how long after it was made. Answers when it
-- ends, and the records in other slots.
function hold.extend(step)
  local record = read(step)
  if not record then
    return { UNKNOWN }
  elseif record.settled then
    return { OTHER_COST }
  end
  stays(step.keys[1])
  local ends_at = min(plus(step.now, tonumber(step.args[1])), plus(record.at, tonumber(step.args[2])))
  for _, part in ipairs(record.parts) do
    if part.companion then
      parts.renew(part, step, ends_at)
    elseif part.limit.has_held and not record.supplied then
      held.extend(part, step.lease, ends_at)
    end
  end
  if record.supplied then
    ends.move(record.supplied, step.keys[1], ends_at)
  end
  call('HSET', step.keys[1], 'ends', format('%.0f', ends_at))
  local is_other = record.other == '1'
  expire({ is_supplied = record.supplied }, step.keys[1], is_other and plus(ends_at, LONGER) or ends_at)
  return { SETTLED, format('%.0f', ends_at), record.others or '' }
end

function hold.look(step)
  local record = read(step)
  return record and dump(SETTLED, record) or { UNKNOWN }
end

return hold
