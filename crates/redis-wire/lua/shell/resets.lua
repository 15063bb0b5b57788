-- Resets: states that are forgotten, and what can no longer be given back since.
--
-- The time of the last charge that a reset forgot is kept next to the state for as long as such a charge could be
-- given back. What was charged after the reset has a later time.

local resets = {}

-- When a state was last charged, whatever its form; nil if that is not known.
local function last_charge(key)
  local kind, at = call('TYPE', key).ok, nil
  if kind == 'string' then
    at = match(call('GET', key), 'at=(%d+)')
  elseif kind == 'hash' then
    at = call('HGET', key, 'at')
  elseif kind == 'zset' then
    at = call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  end
  return at and whole_number(at)
end

local function noted(key)
  return whole_number(call('GET', key) or nil)
end

-- Removes states, as if they had never been charged.
function resets.forget(step)
  for _, task in ipairs(step.tasks) do
    if task.companion then
      call('DEL', task.key, task.companion)
    else
      local at = last_charge(task.key)
      if at then
        at = max(at, call('TYPE', task.reset_note).ok == 'string' and noted(task.reset_note) or 0)
        call('SET', task.reset_note, format('%.0f', at), 'PX', format('%.0f', task.remembered))
      end
      call('DEL', task.key)
    end
  end
  return {}
end

-- For each task, whether its state was reset after what it gives back was taken.
function resets.since_taken(step)
  local is_reset = {}
  for index, task in ipairs(step.tasks) do
    if task.reset_note then
      stays(task.key)
      local at = noted(task.reset_note)
      is_reset[index] = at and task.taken_at <= at
    end
  end
  return is_reset
end

return resets
