-- Months and years, in UTC. Mirror of crates/core/src/calendar.rs.

local months = {}

local DAY = 86400000000
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

-- The month that holds `at`: its first instant, and the first after it.
function months.around_month(at)
  local year, month = year_and_month(at)
  if month == 12 then
    return first_of(year, month), first_of(year + 1, 1)
  end
  return first_of(year, month), first_of(year, month + 1)
end

-- The year that holds `at`.
function months.around_year(at)
  local year = year_and_month(at)
  return first_of(year, 1), first_of(year + 1, 1)
end

return months
