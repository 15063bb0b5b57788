-- Stored reservations: a hash for each, written by the step that charges, with what it takes to settle it later.
--
-- Fields: `at` and `ends`, `supplied` if its time was, `estimate`, `others` (records of the same reservation in
-- other slots), `n`, and its parts by number. A settled one has `settled`, `until`, and `<number>r` for each part.

local hold = {}

local ops, parts, held = module('ops'), module('hold_parts'), module('held')

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
  local ttl, estimate, others = tonumber(step.args[1]), step.args[2], step.args[3]
  local groups, is_other = tonumber(step.args[4]), step.args[5] == 'other'
  local ends = plus(step.now, ttl)
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
  local written, count = {}, tonumber(call('HGET', step.keys[1], 'n') or 0)
  for index, task in ipairs(step.tasks) do
    if is_made and is_allowed[task.group] and task.own > 0 then
      local outcome = outcomes[index]
      if outcome then
        task.taken_at = outcome[AT]
        task.charged_at = plus(outcome[AT], outcome[DELAY])
      end
      local text = parts.write(task)
      count = count + 1
      written[#written + 1], written[#written + 2] = count, text
      if task.limit.has_held then
        held.add(task, step, text, ends, outcome and outcome[RESET_AT] or ends)
      end
    end
  end
  local numbers = {}
  for index = 1, #step.tasks do
    for _, number in ipairs(outcomes[index] or {}) do
      numbers[#numbers + 1] = number
    end
  end
  numbers[#numbers + 1], numbers[#numbers + 2] = #written / 2, ends
  local is_needed = step.args[6] == 'always' or step.args[6] == 'made' and is_made
  if #written == 0 and not is_needed then
    return numbers
  end
  call('HSET', step.keys[1], 'at', format('%.0f', step.now), 'ends', format('%.0f', ends), 'supplied',
    step.is_supplied and 1 or 0, 'estimate', estimate, 'others', others, 'other', is_other and 1 or 0, 'n', count,
    unpack(written))
  expire(step, step.keys[1], is_other and plus(ends, LONGER) or ends)
  return numbers
end

-- The record of a step, unless it has ended; nil then, and if there is none.
local function read(step)
  local fields = call('HGETALL', step.keys[1])
  if #fields == 0 then
    return nil
  end
  local record = {}
  for index = 1, #fields, 2 do
    record[fields[index]] = fields[index + 1]
  end
  if not (record.at and record.ends and record.n and record.estimate) then
    unreadable(step.keys[1])
  end
  record.at, record.ends, record.n = whole_number(record.at), whole_number(record.ends), whole_number(record.n)
  record.is_supplied = record.supplied == '1'
  local now = time
  if record.is_supplied then
    -- It ends by such times alone, and acts at its own unless the caller brings one.
    now = step.is_supplied and step.now or 0
    if not step.is_supplied then
      step.now, step.is_supplied = record.at, true
    end
  end
  -- The first record decides when it has ended.
  local ends = record.settled and whole_number(record['until']) or record.ends
  if record.other ~= '1' and ends <= now then
    return nil
  end
  record.parts = {}
  for index = 1, record.n do
    record.parts[index] = parts.read(record[tostring(index)], step.keys[1])
  end
  return record
end

-- All that is known of a record, as texts.
local function dump(code, record)
  local reply = { code, format('%.0f', record.at), format('%.0f', record.ends), record.estimate,
    record.settled and '1' or '0', record.settled or '', record.others or '' }
  for index = 1, record.n do
    reply[#reply + 1], reply[#reply + 2] = record[tostring(index)], record[index .. 'r'] or ''
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
  stays(step.keys[1])
  -- All states are read before one is written.
  local entries = {}
  for _, part in ipairs(record.parts) do
    entries[part.key] = entries[part.key] or part.form:open(part.key, part.limit, part.companion)
    part.entry = entries[part.key]
  end
  local to_lease = {}
  for number in string.gmatch(step.args[4] or '', '%d+') do
    to_lease[number] = true
  end
  local adjust, results = module('adjust'), { 'settled', settled }
  for index, part in ipairs(record.parts) do
    if part.limit.has_held then
      held.remove(part, step.lease)
      held.expire(part, step)
    end
    local cost = cost_of(part, actual, spent)
    local is_reset, for_lease = parts.is_reset(part), 0
    if to_lease[part.index] and not is_reset then
      -- In Redis they stay charged: they are of the lease.
      for_lease = max(part.cost - cost, 0)
      cost = max(cost, part.cost)
    end
    local done = adjust(part, step, cost, is_reset)
    cost = cost - for_lease
    local result = format('%.0f %.0f %.0f %.0f %.0f %.0f', cost, done[1] + for_lease, done[2], done[3],
      done[4] + for_lease, for_lease)
    record[index .. 'r'] = result
    results[#results + 1], results[#results + 2] = index .. 'r', result
  end
  record.settled = settled
  if step.args[3] == 'remove' then
    call('DEL', step.keys[1])
  else
    local until_then = plus(step.now, A_MINUTE)
    results[#results + 1], results[#results + 2] = 'until', format('%.0f', until_then)
    call('HSET', step.keys[1], unpack(results))
    expire({ is_supplied = record.is_supplied }, step.keys[1], plus(time, A_MINUTE))
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
  local ends = min(plus(step.now, tonumber(step.args[1])), plus(record.at, tonumber(step.args[2])))
  for _, part in ipairs(record.parts) do
    if part.companion then
      parts.renew(part, step, ends)
    elseif part.limit.has_held then
      held.extend(part, step, ends)
    end
  end
  call('HSET', step.keys[1], 'ends', format('%.0f', ends))
  local is_other = record.other == '1'
  expire({ is_supplied = record.is_supplied }, step.keys[1], is_other and plus(ends, LONGER) or ends)
  return { SETTLED, format('%.0f', ends), record.others or '' }
end

function hold.look(step)
  local record = read(step)
  return record and dump(SETTLED, record) or { UNKNOWN }
end

return hold
