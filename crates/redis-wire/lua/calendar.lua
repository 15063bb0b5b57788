-- Windows, and where they begin and end. Mirror of crates/core/src/{calendar,limit/window}.rs.
-- A window is a span in microseconds, or `month`, or `year`, in UTC.

local calendar = {}

local DAY = 86400000000
local WEEK = 7 * DAY

-- The time from the start of the clock-aligned window of length `span` to `at`, which it holds.
function calendar.elapsed_in(span, at)
  if span == WEEK then
    -- The epoch was a Thursday, three days after a Monday. Taken apart to stay below 2^53.
    return (at % WEEK + 3 * DAY) % WEEK
  end
  return at % span
end

-- The clock-aligned window that holds `at`: its first instant, and the first after it. With `from_epoch`, weeks are
-- counted from the epoch, too.
function calendar.around(window, at, from_epoch)
  if window == 'month' then
    return module('months').around_month(at)
  elseif window == 'year' then
    return module('months').around_year(at)
  end
  local elapsed = from_epoch and at % window or calendar.elapsed_in(window, at)
  return minus(at, elapsed), plus(at, window - elapsed)
end

-- The longest that such a window can be.
function calendar.longest(window)
  if window == 'month' then
    return 31 * DAY
  elseif window == 'year' then
    return 366 * DAY
  end
  return window
end

return calendar
