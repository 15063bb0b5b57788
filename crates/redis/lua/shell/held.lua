-- Releasing and renewing leases, by their register or by the key of one state.

-- As of when leases are released and renewed: now, but where times are supplied, as of the last change.
local function time_for(leases, step)
  if step.is_supplied then
    return step.now
  end
  return not leases.is_supplied and step.now or nil
end

-- Does `act` to each state of a lease's register that is in this slot. Answers whether it did so with
-- any, or with all, and names the states that are elsewhere.
local function with_registered(step, act)
  local found = call('HGETALL', step.register)
  local here, answer, longest, is_supplied = {}, { 0 }, 0, false
  for index = 1, #found, 2 do
    local key, place, ttl = found[index], match(found[index + 1], '^(%a+) (%d+)$')
    longest = max(longest, whole_number(ttl) or 0)
    if place == 'here' then
      local leases = open_leases(key, key .. ':leases')
      is_supplied = is_supplied or leases.is_supplied
      here[#here + 1] = { key = key, leases = leases }
    elseif place == 'there' then
      answer[#answer + 1] = key
    else
      unreadable(step.register)
    end
  end
  local any, all = false, #found > 0
  for _, state in ipairs(here) do
    local done = act(state.leases, step.lease, time_for(state.leases, step), step)
    any, all = any or done, all and done
    state.is_done = done
  end
  return { answer = answer, here = here, any = any, all = all, longest = longest, is_supplied = is_supplied }
end

-- Ends a lease in all states of its register: whether one of them was live, and where else it is held.
function ops.release(step)
  local done = with_registered(step, release)
  call('DEL', step.register)
  done.answer[1] = done.any and 1 or 0
  return done.answer
end

-- Renews a lease in all states of its register: whether all of them were live, and where else it is held.
function ops.renew(step)
  local done = with_registered(step, renew)
  for _, state in ipairs(done.here) do
    if not state.is_done then
      call('HDEL', step.register, state.key)
    end
  end
  if done.longest > 0 then
    expire({ is_supplied = done.is_supplied or step.is_supplied }, step.register, plus(step.now, done.longest))
  end
  done.answer[1] = done.all and 1 or 0
  return done.answer
end

-- The same for one state that is named by its key.
function ops.release_there(step)
  local leases = open_leases(step.keys[1], step.keys[2])
  return { release(leases, step.lease, time_for(leases, step), step) and 1 or 0 }
end

function ops.renew_there(step)
  local leases = open_leases(step.keys[1], step.keys[2])
  return { renew(leases, step.lease, time_for(leases, step), step) and 1 or 0 }
end
