-- Repairs states that no version of this program has written: values of another type are removed, and
-- numbers that are too small are taken out. What has the right type and cannot be read is left.

-- What was found of a state.
local NOTHING, FOREIGN, NEGATIVE = 0, 1, 2

-- The type of each kind of limit's state, in every version.
local TYPES = {
  bucket = 'string',
  cell = 'string',
  fixed_window = 'string',
  sliding_window_counter = 'string',
  sliding_window_slots = 'hash',
  sliding_window_log = 'zset',
  concurrency = 'zset',
}

local function remove_foreign(key, wanted)
  local found = call('TYPE', key).ok
  if found == 'none' or found == wanted then
    return false
  end
  call('DEL', key)
  return true
end

local function is_negative(text)
  return text and module('counts').is_negative(text)
end

local function heal_slots(key)
  local fields, bad = call('HGETALL', key), {}
  for index = 1, #fields, 2 do
    if is_negative(fields[index]) or is_negative(fields[index + 1]) then
      bad[#bad + 1] = fields[index]
    end
  end
  if #bad == 0 then
    return NOTHING
  end
  for start = 1, #bad, AT_ONCE do
    call('HDEL', key, unpack(bad, start, min(start + AT_ONCE - 1, #bad)))
  end
  return NEGATIVE
end

-- How many permits of a state are held.
local function held_by_all(key, companion)
  local held = 0
  for start = 0, call('ZCARD', key) - 1, AT_ONCE do
    local ids = call('ZRANGE', key, start, start + AT_ONCE - 1)
    for _, lease in ipairs(call('HMGET', companion, unpack(ids))) do
      held = held + (whole_number(match(lease or '', '^(%d+) ')) or 1)
    end
  end
  return held
end

-- Removes the leases that end before any clock began.
local function remove_ended_before_time(key, companion)
  local removed = false
  while true do
    local ids = call('ZRANGEBYSCORE', key, '-inf', '(0', 'LIMIT', 0, AT_ONCE)
    if #ids == 0 then
      return removed
    end
    call('ZREM', key, unpack(ids))
    call('HDEL', companion, unpack(ids))
    removed = true
  end
end

local function heal_leases(key, companion)
  local known, found = call('HMGET', companion, 'at', 'held'), NOTHING
  local is_shorter = remove_ended_before_time(key, companion)
  if is_shorter then
    found = NEGATIVE
  end
  if is_negative(known[1]) then
    call('HSET', companion, 'at', 0)
    found = NEGATIVE
  end
  local held = known[2] and match(known[2], '^%d+$') and tonumber(known[2])
  if is_negative(known[2]) then
    held = -1
  end
  if held and (is_shorter or held < call('ZCARD', key)) then
    call('HSET', companion, 'held', held_by_all(key, companion))
    found = NEGATIVE
  end
  return found
end

local function heal_task(task)
  local kind, found = task.limit.kind, NOTHING
  if remove_foreign(task.key, TYPES[kind]) then
    found = FOREIGN
  end
  if task.companion and remove_foreign(task.companion, 'hash') then
    found = FOREIGN
  end
  if found ~= NOTHING then
    return found
  elseif kind == 'sliding_window_slots' then
    return heal_slots(task.key)
  elseif kind == 'concurrency' then
    return heal_leases(task.key, task.companion)
  end
  return NOTHING
end

return function(step)
  local found = {}
  for index, task in ipairs(step.tasks) do
    found[index] = heal_task(task)
  end
  return found
end
