-- A bucket whose state does not depend on the window: written like any other bucket, but its part is
-- one of as many as a request has in common_parts.lua.

local bucket, common_parts = module('bucket_form'), module('common_parts')
local form = setmetatable({}, { __index = bucket })

local from_part, to_part = common_parts.from_part, common_parts.to_part
local admit = bucket.algorithm.admit
local kept_limit = { window = common_parts.PARTS }

function form.limit()
  local limit = bucket.limit()
  limit.each = common_parts.each(limit.window)
  return limit
end

function form.parse(text, limit)
  local state = bucket.parse(text, kept_limit)
  if not state or state.leases then
    return nil
  end
  local whole, part = to_part(state.part, limit.window, limit.each)
  state.whole, state.part = state.whole + whole, part
  return state
end

function form.write(state, limit)
  local part = from_part(state.part, limit.window, limit.each)
  return format('debt=%.0f part=%.0f at=%.0f', state.whole, part, state.changed_at)
end

-- A charge that is admitted at once, as in bucket_form.lua.
function form.admit(limit, key, cost, now)
  local text, whole, part, changed_at = redis.call('GET', key), 0, 0, 0
  if text then
    local state = form.parse(text, limit)
    if not state then
      return nil
    end
    whole, part, changed_at = state.whole, state.part, state.changed_at
  end
  local remaining, reset_at
  whole, part, remaining, reset_at = admit(limit, whole, part, changed_at, cost, now)
  if not whole then
    return nil
  end
  part = from_part(part, limit.window, limit.each)
  redis.call('SET', key, format('debt=%.0f part=%.0f at=%.0f', whole, part, now), 'PXAT', expiry(reset_at))
  return remaining, reset_at
end

return form
