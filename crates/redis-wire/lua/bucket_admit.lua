-- The part of bucket.lua that the most common charges need, apart so that most calls run no more.
-- Mirror of crates/core/src/algorithm/bucket.rs, as that is.

local min = math.min

-- Less by `less_whole + less_part / window`, stopping at nothing.
local function less(whole, part, less_whole, less_part, window)
  if part < less_part then
    whole, part = whole - 1, part + window
  end
  if whole < less_whole then
    return 0, 0
  end
  return whole - less_whole, part - less_part
end

-- What is left of a debt after `elapsed`.
local function leaked(limit, whole, part, elapsed)
  local less_whole, less_part = mul_div(elapsed, limit.count, limit.window)
  return less(whole, part, less_whole, less_part, limit.window)
end

-- How long a debt takes to fall to `target`, which it is above; rounded up.
local function time_to_repay(limit, whole, part, target)
  return min(mul_add_div_ceil(whole - target, limit.window, part, limit.count), MAX)
end

-- The answer to most charges, in plain numbers: those that fit without delay, into a bucket that has no
-- leases, lets nothing wait in line, and was last changed in the past. Returns the debt to keep as of
-- now, what remains, and when nothing is owed; nothing for all other charges.
local function admit(limit, whole, part, changed_at, cost, now)
  if changed_at > now or cost == 0 or limit.hold < 0 then
    return nil
  end
  whole, part = leaked(limit, whole, part, now - changed_at)
  whole = whole + cost
  local owed = part > 0 and whole + 1 or whole
  if owed > limit.burst then
    return nil
  end
  return whole, part, limit.burst - owed, plus(now, time_to_repay(limit, whole, part, 0))
end

return { less = less, leaked = leaked, time_to_repay = time_to_repay, admit = admit }
