-- How a fixed window is written: `opened=… at=… used=…`.

local form = form_of('inline')

form.algorithm = module('fixed_window')

function form.parse(text)
  local opened_at, changed_at, used = match(text, '^opened=(%d+) at=(%d+) used=(%d+)$')
  opened_at, changed_at, used = whole_number(opened_at), whole_number(changed_at), whole_number(used)
  return opened_at and changed_at and used and { opened_at = opened_at, changed_at = changed_at, used = used }
end

function form.write(state)
  return format('opened=%.0f at=%.0f used=%.0f', state.opened_at, state.changed_at, state.used)
end

return form
