-- A bucket whose state does not depend on the window: written like any other bucket, but its part is
-- one of as many as a request has in common_parts.lua.

local bucket, common_parts = module('bucket_form'), module('common_parts')
local form = setmetatable({}, { __index = bucket })

local from_part, to_part = common_parts.from_part, common_parts.to_part
local kept_limit = { window = common_parts.PARTS }

local function each_of(limit)
  limit.each = limit.each or common_parts.each(limit.window)
  return limit.each
end

function form.parse(text, limit)
  local state = bucket.parse(text, kept_limit)
  if not state or state.leases then
    return nil
  end
  local whole, part = to_part(state.part, limit.window, each_of(limit))
  state.whole, state.part = state.whole + whole, part
  return state
end

function form.write(state, limit)
  local part = from_part(state.part, limit.window, each_of(limit))
  return format('debt=%.0f part=%.0f at=%.0f', state.whole, part, state.changed_at)
end

return form
