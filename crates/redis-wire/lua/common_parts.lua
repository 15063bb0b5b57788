-- Remainders of requests in parts that do not depend on a window, so that a bucket can take over the
-- state of another with a different one.
-- Mirror of crates/core/src/algorithm/common_parts.rs: same names, same order.

local common_parts = {}

-- How many parts make a request: the microseconds of the longest window.
local PARTS = 31622400000000
common_parts.PARTS = PARTS

-- How many parts make one of the window's own, if that is a whole number.
function common_parts.each(window)
  return PARTS % window == 0 and PARTS / window or nil
end

-- From parts of the window, rounded up.
local function from_part(part, window, each)
  if each then
    return part * each
  end
  return mul_add_div_ceil(part, PARTS, 0, window)
end
common_parts.from_part = from_part

-- To whole requests and parts of the window. What `from_part` made of a part becomes that part again;
-- everything else is rounded up.
function common_parts.to_part(kept, window, each)
  local part, rest
  if each then
    rest = kept % each
    part = (kept - rest) / each
  else
    part, rest = mul_div(kept, window, PARTS)
  end
  if rest > 0 and (each or from_part(part, window) ~= kept) then
    part = part + 1
  end
  if part < window then
    return 0, part
  end
  return 1, 0
end

return common_parts
