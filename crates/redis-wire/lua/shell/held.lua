-- What is given back when reservations end that are never settled: next to the counter, a sorted set of their ids
-- and the index of the part, by their end, `<counter>:held`, and a hash of their parts, `<counter>:held:parts`. Read only for limits of rules that say so.

local held = {}

local function keys_of(counter)
  return counter .. ':held', counter .. ':held:parts'
end

-- A part of this reservation is held until `ends`; its charge counts until `counts_until` at the latest.
function held.add(task, step, text, ends, counts_until)
  local queue, texts = keys_of(task.key)
  local name = step.lease .. ':' .. task.index
  call('ZADD', queue, format('%.0f', ends), name)
  call('HSET', texts, name, text)
  for _, key in ipairs({ queue, texts }) do
    if step.is_supplied then
      call('PEXPIRE', key, A_DAY)
    else
      local at = expiry(max(ends, counts_until))
      if call('PEXPIREAT', key, at, 'NX') == 0 then
        call('PEXPIREAT', key, at, 'GT')
      end
    end
  end
end

local function remove(counter, name)
  local queue, texts = keys_of(counter)
  call('ZREM', queue, name)
  call('HDEL', texts, name)
end

-- The part of a reservation that ends otherwise.
function held.remove(part, id)
  remove(part.key, id .. ':' .. part.index)
end

function held.extend(part, step, ends)
  local queue = keys_of(part.key)
  if call('ZSCORE', queue, step.lease .. ':' .. part.index) then
    held.add(part, step, part.text, ends, ends)
  end
end

-- Gives back what has ended until now, each as of its end, in the order of the ends.
function held.expire(task, step)
  local queue, texts = keys_of(task.key)
  local due = call('ZRANGEBYSCORE', queue, '-inf', format('%.0f', step.now), 'WITHSCORES')
  if due[1] then
    stays(task.key)
  end
  for index = 1, #due, 2 do
    local name, ends = due[index], tonumber(due[index + 1])
    local text = call('HGET', texts, name)
    if text then
      local parts = module('hold_parts')
      local part = parts.read(text, texts)
      part.entry = task.entry
      if not parts.is_reset(part) then
        part.form.give_back(part, { now = ends, lease = '', is_supplied = step.is_supplied })
      end
    end
    remove(task.key, name)
  end
end

return held
