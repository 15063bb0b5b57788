-- Whole numbers in doubles: what the algorithms share, and the products that a double cannot hold.
-- Mirror of crates/core/src/algorithm/{arithmetic,mod}.rs and of the arithmetic in time.rs.
--
-- Every value is a whole number below 2^53. A quotient beyond that is only near the truth, and all
-- callers take it to mean "the end of time" or "everything".

-- The last instant, and the longest span, in microseconds.
local MAX = 9007199254740991
local TOO_LARGE = 9007199254740992

-- Where things are in an outcome. `retry` is a wait, or one of the two numbers below.
local ALLOWED, REMAINING, RETRY, RESET_AT, DELAY, AT = 1, 2, 3, 4, 5, 6
local NOW, NEVER = 0, -1

-- Adds to an instant or a span, stopping at the last one.
local function plus(time, span)
  local sum = time + span
  return sum > MAX and MAX or sum
end

-- Subtracts, and stops at zero.
local function minus(number, other)
  return number > other and number - other or 0
end

-- Whole part and remainder of `a * b / divisor`, where the product reaches 2^53.
-- `divisor` is below 2^45, and so is `b`.
local function wide_mul_div(a, b, divisor)
  local left = a % divisor
  local whole = (a - left) / divisor * b
  -- What is left of `a` times `b`, taking `b` in digits of seven bits from the top.
  local scale = 1
  while scale * 128 <= b do
    scale = scale * 128
  end
  local quotient, rest = 0, 0
  while scale >= 1 do
    local below = b % scale
    local dividend = rest * 128 + left * ((b - below) / scale)
    rest = dividend % divisor
    quotient = quotient * 128 + (dividend - rest) / divisor
    b = below
    scale = scale / 128
  end
  return whole + quotient, rest
end

-- Whole part and remainder of `a * b / divisor`.
local function mul_div(a, b, divisor)
  local product = a * b
  if product < TOO_LARGE then
    local rest = product % divisor
    return (product - rest) / divisor, rest
  end
  return wide_mul_div(a, b, divisor)
end

-- `(a * b + c) / divisor`, rounded up.
local function mul_add_div_ceil(a, b, c, divisor)
  local whole, rest = 0, a * b + c
  if rest >= TOO_LARGE then
    whole, rest = mul_div(a, b, divisor)
    rest = rest + c
  end
  local left = rest % divisor
  whole = whole + (rest - left) / divisor
  return left > 0 and whole + 1 or whole
end

-- How far a state that was last changed at `changed_at` has to be moved back in time, so that it is
-- not further in the future than its limit remembers. Almost always not at all.
local function set_back(changed_at, now, memory)
  local ahead = changed_at - now
  return ahead > memory and ahead or 0
end

-- The outcome of a limit that never delays: what is `used` of `limit` after the verdict, whole
-- again at `reset_at`.
local function outcome_of(allowed, retry, limit, used, reset_at, at)
  return { allowed and 1 or 0, minus(limit, used), retry, reset_at, 0, at }
end
