-- What a log and leases have in common: members of a sorted set by rank, read as they are asked for.

-- A view of the set at `key`, read a `page` at a time. `read` makes entries of what was found, and
-- gives each to its second argument with its index in the page.
return function(key, page, read)
  local view = {}
  local length, entries = call('ZCARD', key), {}

  function view.length()
    return length
  end

  function view.up_to(time)
    return call('ZCOUNT', key, '-inf', time)
  end

  function view.entry(rank)
    if not entries[rank] then
      read(call('ZRANGE', key, rank, rank + page - 1, 'WITHSCORES'), function(index, entry)
        entries[rank + index] = entry
      end)
    end
    local entry = entries[rank]
    return entry[1], entry[2], entry[3]
  end

  -- After a change: nothing that was read is true any more.
  function view.changed_by(count)
    length, entries = length + count, {}
  end

  -- All move by the same span, so ranks stay as they are.
  function view.move(by)
    for start = 0, length - 1, AT_ONCE do
      local found, moved = call('ZRANGE', key, start, start + AT_ONCE - 1, 'WITHSCORES'), {}
      for index = 1, #found, 2 do
        moved[index], moved[index + 1] = minus(tonumber(found[index + 1]), by), found[index]
      end
      call('ZADD', key, unpack(moved))
    end
    view.changed_by(0)
  end

  return view
end
