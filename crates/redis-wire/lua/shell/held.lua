-- What is given back when reservations end that are never settled: next to the counter, a sorted set of their ids
-- and the index of the part, by their end, `<counter>:held`, and a hash of what it takes to give each part back,
-- `<counter>:held:parts`. Read only for limits of rules that say so, and by calls at the time of Redis: what ends by
-- supplied times is in ends.lua.
--
-- Invariant: a part is in it if and only if its estimate is still charged. The call that takes it out changes the
-- charge.

local held = {}

local function keys_of(counter)
  return counter .. ':held', counter .. ':held:parts'
end

local function name_of(part, id)
  return id .. ':' .. part.index
end

local function keep_until(counter, time)
  for _, key in ipairs({ keys_of(counter) }) do
    local at = expiry(time)
    if call('PEXPIREAT', key, at, 'NX') == 0 then
      call('PEXPIREAT', key, at, 'GT')
    end
  end
end

-- A part of this reservation is held until `ends`; its charge counts until `counts_until` at the latest.
function held.add(task, id, ends, counts_until)
  local queue, texts = keys_of(task.key)
  local name = name_of(task, id)
  call('ZADD', queue, format('%.0f', ends), name)
  call('HSET', texts, name, module('hold_parts').write_held(task))
  keep_until(task.key, max(ends, counts_until))
end

local function remove(counter, name)
  local queue, texts = keys_of(counter)
  call('HDEL', texts, name)
  return call('ZREM', queue, name) == 1
end

-- Takes out the part of a reservation that ends otherwise. Whether it was still held: else its end has passed, and it
-- was given back.
function held.remove(part, id)
  return remove(part.key, name_of(part, id))
end

function held.extend(part, id, ends)
  local queue = keys_of(part.key)
  local name = name_of(part, id)
  if call('ZSCORE', queue, name) then
    call('ZADD', queue, format('%.0f', ends), name)
    keep_until(part.key, ends)
  end
end

-- Gives back what has ended until now, each as of its end, in the order of the ends; not the part of the reservation
-- with the id `but`, which is about to be settled.
function held.expire(task, but)
  local queue, texts = keys_of(task.key)
  local due = call('ZRANGEBYSCORE', queue, '-inf', format('%.0f', time), 'WITHSCORES')
  if due[1] then
    stays(task.key)
  end
  for index = 1, #due, 2 do
    local name, ends = due[index], tonumber(due[index + 1])
    if match(name, '^%x+') ~= but then
      local text = call('HGET', texts, name)
      if text then
        local parts = module('hold_parts')
        local part = parts.read_held(text, task.key)
        part.entry = task.entry
        if not parts.is_reset(part) then
          part.form.give_back(part, { now = ends, lease = '', is_supplied = false })
        end
      end
      remove(task.key, name)
    end
  end
end

return held
