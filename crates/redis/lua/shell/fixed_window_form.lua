-- How a fixed window is written: `opened=… at=… used=…`.

local form = form_of('inline')

form.algorithm = module('fixed_window')
local admit = form.algorithm.admit

function form.parse(text)
  local opened_at, changed_at, used = match(text, '^opened=(%d+) at=(%d+) used=(%d+)$')
  opened_at, changed_at, used = whole_number(opened_at), whole_number(changed_at), whole_number(used)
  return opened_at and changed_at and used and { opened_at = opened_at, changed_at = changed_at, used = used }
end

function form.write(state)
  return format('opened=%.0f at=%.0f used=%.0f', state.opened_at, state.changed_at, state.used)
end

-- A charge that is admitted at once: what remains, and when the window ends. Nothing, and nothing
-- changed, if it takes more than that to decide it.
function form.admit(limit, key, cost, now)
  local text, opened_at, changed_at, used = redis.call('GET', key), 0, 0, 0
  if text then
    opened_at, changed_at, used = match(text, '^opened=(%d+) at=(%d+) used=(%d+)$')
    opened_at, changed_at, used = tonumber(opened_at), tonumber(changed_at), tonumber(used)
    if not opened_at or opened_at > MAX or used > MAX then
      return nil
    end
  end
  local remaining, ends_at
  opened_at, used, remaining, ends_at = admit(limit, opened_at, changed_at, used, cost, now)
  if not opened_at then
    return nil
  end
  local window = format('opened=%d at=%d used=%d', opened_at, now, used)
  redis.call('SET', key, window, 'PXAT', expiry(ends_at))
  return remaining, ends_at
end

function form.limit()
  local count, window, anchor = number(), text(), text()
  return { count = count, window = tonumber(window) or window, from_first = anchor == 'first_request', form = nil }
end

return form
