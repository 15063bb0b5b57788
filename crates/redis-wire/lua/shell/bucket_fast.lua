-- The fast path of a bucket, as bucket_form.lua writes it and without leases.

local admit = module('bucket_admit').admit

-- A charge that is admitted without delay: what remains, and when nothing is owed. Nothing, and nothing
-- changed, if it takes more than that to decide it.
local function charge(limit, key, cost, now)
  local text, whole, part, changed_at = call('GET', key), 0, 0, 0
  if text then
    whole, part, changed_at = match(text, '^debt=(%d+) part=(%d+) at=(%d+)$')
    whole, part, changed_at = tonumber(whole), tonumber(part), tonumber(changed_at)
    if not whole or whole > MAX or part >= limit.window then
      return nil
    end
  end
  local remaining, reset_at
  whole, part, remaining, reset_at = admit(limit, whole, part, changed_at, cost, now)
  if not whole then
    return nil
  end
  local debt = format('debt=%d part=%d at=%d', whole, part, now)
  call('SET', key, debt, 'PXAT', format('%d', expiry(reset_at)))
  return remaining, reset_at
end

return charge
