-- The reservations whose times are supplied: a sorted set of their records by their end.
--
-- Invariant: a record is in it if and only if no time that was supplied since it was written is at or past its end. So
-- each call that brings a time ends all that are due by then, whatever counters it asks for, as the store in memory does.
-- Reservations made by the clock have no part in it, and supplied times none in those.

local ends = {}

-- Whether a call failed because of a value that this program has not written.
local function is_foreign(problem)
  local text = type(problem) == 'table' and (problem.text or problem.err) or problem
  return match(text, 'UNREADABLE') or match(text, 'NEGATIVE') or match(text, 'WRONGTYPE')
end

-- Ends what is due, before the call reads any state.
function ends.expire(step)
  local due = call('ZRANGEBYSCORE', step.ends, '-inf', format('%.0f', step.now))
  if not due[1] then
    return
  end
  stays(step.ends)
  for _, key in ipairs(due) do
    local is_done, problem = pcall(module('hold').finish, key)
    -- A foreign value is not changed, and does not hold up all other calls.
    if not is_done and not is_foreign(problem) then
      error(problem, 0)
    end
    call('ZREM', step.ends, key)
  end
end

function ends.add(queue, key, time)
  call('ZADD', queue, format('%.0f', time), key)
  call('PEXPIRE', queue, A_DAY)
end

-- Whether it was still in the set.
function ends.remove(queue, key)
  return call('ZREM', queue, key) == 1
end

function ends.move(queue, key, time)
  if call('ZSCORE', queue, key) then
    ends.add(queue, key, time)
  end
end

return ends
