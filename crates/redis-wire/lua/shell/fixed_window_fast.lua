-- The fast path of a fixed window, as fixed_window_form.lua writes it.

local admit = module('fixed_window_admit').admit

-- A charge that is admitted without delay: what remains, and when the window ends. Nothing, and nothing
-- changed, if it takes more than that to decide it.
local function charge(limit, key, cost, now)
  local text, opened_at, changed_at, used = call('GET', key), 0, 0, 0
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
  call('SET', key, window, 'PXAT', format('%d', expiry(ends_at)))
  return remaining, ends_at
end

return charge
