-- Numbers that are kept on their own, in a hash or as scores: read with doubt.

local counts = {}

-- A number that would give more than the limit. No version writes one; heal.lua takes it out.
function counts.negative(key)
  error({ text = 'NEGATIVE the value of key `' .. key .. '` has a number that is too small' }, 0)
end

function counts.is_negative(text)
  return match(text, '^%-%d') or text == '-inf'
end

-- The whole number that `text` writes.
function counts.count(text, key)
  local count = match(text, '^%d+$') and tonumber(text)
  if count and count <= MAX then
    return count
  end
  if counts.is_negative(text) then
    counts.negative(key)
  end
  unreadable(key)
end

return counts
