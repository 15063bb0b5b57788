-- The part of fixed_window.lua that the most common charges need, apart so that most calls run no more.
-- Mirror of crates/core/src/algorithm/fixed_window.rs, as that is.

local around = module('calendar').around

-- The window that is open at `at`: its start, what was used in it, its end.
local function window_at(limit, opened_at, used, at)
  local starts_at, ends_at
  if limit.from_first then
    starts_at, ends_at = opened_at, plus(opened_at, limit.window)
    local is_open = used > 0 and at < ends_at
    if not is_open then
      starts_at, ends_at = at, plus(at, limit.window)
    end
  else
    starts_at, ends_at = around(limit.window, at, limit.from_epoch)
  end
  return starts_at, opened_at == starts_at and used or 0, ends_at
end

-- The answer to most charges, in plain numbers: those that fit, into a window that was last changed
-- in the past. Returns when it was opened and what is used of it then, what remains, and when it ends;
-- nothing for all other charges.
local function admit(limit, opened_at, changed_at, used, cost, now)
  if changed_at > now or cost == 0 then
    return nil
  end
  local starts_at, already, ends_at = window_at(limit, opened_at, used, now)
  used = already + cost
  if used > limit.count then
    return nil
  end
  return starts_at, used, limit.count - used, ends_at
end

return { window_at = window_at, admit = admit }
