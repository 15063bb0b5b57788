-- Every limit of the call, as it is written in ARGV: once, before the steps that name it by its index.

local function read_limit(kind)
  if kind == 'bucket' or kind == 'cell' then
    return {
      kind = kind,
      count = number(),
      window = number(),
      burst = number(),
      to_full = number(),
      hold = number(),
    }
  elseif kind == 'fixed_window' then
    local count, window, anchor = number(), text(), text()
    return {
      kind = kind,
      count = count,
      window = tonumber(window) or window,
      from_first = anchor == 'first_request',
      from_epoch = anchor == 'epoch',
    }
  elseif kind == 'sliding_window_slots' then
    return { kind = kind, count = number(), window = number(), slot = number(), counted = number() }
  elseif kind == 'concurrency' then
    return { kind = kind, holders = number(), lease_ttl = number(), has_companion = true }
  elseif kind == 'held' then
    -- Of a rule to which reservations that are never settled are given back.
    local limit = read_limit(text())
    limit.has_held = true
    return limit
  end
  return { kind = kind, count = number(), window = number() }
end

for index = 1, number() do
  limits[index] = read_limit(text())
end
