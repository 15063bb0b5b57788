-- Windows, and where they begin and end. Mirror of crates/core/src/{calendar,limit/window}.rs.
-- A window is a span in microseconds, or `month`, or `year`, in UTC.

local calendar = {}

local DAY = 86400000000
local WEEK = 7 * DAY
local DAYS_IN_400_YEARS = 146097
-- Days from 0000-03-01, where the count starts, to the Unix epoch.
local DAYS_TO_EPOCH = 719468

local floor = math.floor

local function year_and_month(at)
  local days = floor(at / DAY) + DAYS_TO_EPOCH
  local cycle = floor(days / DAYS_IN_400_YEARS)
  local day_of_cycle = days % DAYS_IN_400_YEARS
  -- Take the leap days out, so that every year has 365 days.
  local leap_days = floor(day_of_cycle / 1460) + floor(day_of_cycle / 146096) - floor(day_of_cycle / 36524)
  local year_of_cycle = floor((day_of_cycle - leap_days) / 365)
  local day_of_year = day_of_cycle - (365 * year_of_cycle + floor(year_of_cycle / 4) - floor(year_of_cycle / 100))
  -- Months from March have 31, 30, 31, 30, 31 days, over and over: 153 days for five.
  local month_from_march = floor((5 * day_of_year + 2) / 153)
  local year_from_march = cycle * 400 + year_of_cycle
  if month_from_march < 10 then
    return year_from_march, month_from_march + 3
  end
  return year_from_march + 1, month_from_march - 9
end

local function first_of(year, month)
  local month_from_march = month - 3
  if month <= 2 then
    year, month_from_march = year - 1, month + 9
  end
  local day_of_year = floor((153 * month_from_march + 2) / 5)
  local days = 365 * year + floor(year / 4) - floor(year / 100) + floor(year / 400) + day_of_year
  return plus(0, DAY * minus(days, DAYS_TO_EPOCH))
end

local function month_around(at)
  local year, month = year_and_month(at)
  if month == 12 then
    return first_of(year, month), first_of(year + 1, 1)
  end
  return first_of(year, month), first_of(year, month + 1)
end

local function year_around(at)
  local year = year_and_month(at)
  return first_of(year, 1), first_of(year + 1, 1)
end

-- The time from the start of the clock-aligned window of length `span` to `at`, which it holds.
function calendar.elapsed_in(span, at)
  if span == WEEK then
    -- The epoch was a Thursday, three days after a Monday. Taken apart to stay below 2^53.
    return (at % WEEK + 3 * DAY) % WEEK
  end
  return at % span
end

-- The clock-aligned window that holds `at`: its first instant, and the first after it.
function calendar.around(window, at)
  if window == 'month' then
    return month_around(at)
  elseif window == 'year' then
    return year_around(at)
  end
  local elapsed = calendar.elapsed_in(window, at)
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
