-- The register of permits: a hash of the states that hold permits of one id, in this slot or another,
-- and how long they last there. So the id is enough to find them.

local register = {}

local leases = module('leases')

-- Records the permits that a step has taken, and those that it says are taken elsewhere.
function register.write(step, outcomes)
  local ends_at, fields = 0, {}
  for index, task in ipairs(step.tasks) do
    if task.first == index and task.companion and task.cost > 0 then
      fields[#fields + 1], fields[#fields + 2] = task.key, format('here %.0f', task.limit.lease_ttl)
      ends_at = max(ends_at, plus(outcomes[index][AT], task.limit.lease_ttl))
    end
  end
  for _, there in ipairs(step.there) do
    fields[#fields + 1], fields[#fields + 2] = there.key, format('there %.0f', there.ttl)
    ends_at = max(ends_at, plus(step.now, there.ttl))
  end
  if #fields == 0 then
    return
  end
  call('HSET', step.register, unpack(fields))
  if step.is_supplied then
    call('PEXPIRE', step.register, A_DAY)
  elseif call('PEXPIREAT', step.register, expiry(ends_at), 'NX') == 0 then
    call('PEXPIREAT', step.register, expiry(ends_at), 'GT')
  end
end

-- The states that are here, and the names of those that are not. Reads all before any is changed.
local function read(step)
  local found = call('HGETALL', step.register)
  local here, there, longest = {}, {}, 0
  for index = 1, #found, 2 do
    local key, where, ttl = found[index], match(found[index + 1], '^(%a+) (%d+)$')
    longest = max(longest, whole_number(ttl) or 0)
    if where == 'here' then
      here[#here + 1] = { key = key, view = leases.open(key, key .. ':leases') }
    elseif where == 'there' then
      there[#there + 1] = key
    else
      unreadable(step.register)
    end
  end
  return here, there, longest
end

function register.release(step)
  local here, there = read(step)
  local any = false
  for _, state in ipairs(here) do
    local time = leases.time_for(state.view, step)
    any = leases.release(state.view, step.lease, time, step) or any
  end
  -- Kept while permits are held elsewhere: the store removes it when it has released those.
  if #here > 0 and #there == 0 then
    call('DEL', step.register)
  end
  return { any and 1 or 0, unpack(there) }
end

function register.renew(step)
  stays(step.register)
  local here, there, longest = read(step)
  local all, is_supplied = #here + #there > 0, step.is_supplied
  for _, state in ipairs(here) do
    local time = leases.time_for(state.view, step)
    is_supplied = is_supplied or state.view.is_supplied
    if not leases.renew(state.view, step.lease, time, step) then
      call('HDEL', step.register, state.key)
      all = false
    end
  end
  if longest > 0 then
    expire({ is_supplied = is_supplied }, step.register, plus(step.now, longest))
  end
  return { all and 1 or 0, unpack(there) }
end

return register
