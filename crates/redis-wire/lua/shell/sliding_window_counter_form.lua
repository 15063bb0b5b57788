-- How a sliding window counter is written: `at=… current=… previous=…`.

local form = form_of('inline')

form.algorithm = module('sliding_window_counter')

function form.parse(text)
  local changed_at, current, previous = match(text, '^at=(%d+) current=(%d+) previous=(%d+)$')
  changed_at, current, previous = whole_number(changed_at), whole_number(current), whole_number(previous)
  return changed_at and current and previous
    and { changed_at = changed_at, current = current, previous = previous }
end

function form.write(state)
  return format('at=%.0f current=%.0f previous=%.0f', state.changed_at, state.current, state.previous)
end

return form
