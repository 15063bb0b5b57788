-- How slots are kept: a hash of `at` and, for each slot by its number, what was used in it.

local form = form_of('spilled')

form.algorithm = module('sliding_window_slots')

local read_count = module('counts').count

function form.open(_, key)
  local fields = call('HGETALL', key)
  local changed_at, counts, kept = 0, {}, {}
  for index = 1, #fields, 2 do
    local field, count = fields[index], read_count(fields[index + 1], key)
    if field == 'at' then
      changed_at = count
    else
      local slot = read_count(field, key)
      counts[slot], kept[slot] = count, count
    end
  end
  local state = { changed_at = changed_at, counts = counts }
  return { key = key, is_kept = #fields > 0, state = state, kept = kept, kept_at = changed_at }
end

function form.save(entry, step, reset_at)
  local set, removed, kept = { 'at', entry.state.changed_at }, {}, {}
  for slot, count in pairs(entry.state.counts) do
    if entry.kept[slot] ~= count then
      set[#set + 1], set[#set + 2] = format('%.0f', slot), count
    end
    kept[slot] = count
  end
  for slot in pairs(entry.kept) do
    if not kept[slot] then
      removed[#removed + 1] = format('%.0f', slot)
    end
  end
  if #set > 2 or #removed > 0 or entry.kept_at ~= entry.state.changed_at then
    call('HSET', entry.key, unpack(set))
    if #removed > 0 then
      call('HDEL', entry.key, unpack(removed))
    end
    entry.kept, entry.kept_at, entry.is_kept = kept, entry.state.changed_at, true
  end
  if reset_at then
    expire(step, entry.key, reset_at)
  end
end

return form
