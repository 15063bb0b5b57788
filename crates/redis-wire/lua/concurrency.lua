-- Concurrency: a maximum number of permits, each of which ends by itself if it is neither released
-- nor renewed. Mirror of crates/core/src/algorithm/concurrency.rs: same names, same order.
--
-- limit: holders, lease_ttl
-- leases: a view of the leases, in the order in which they end:
--   changed_at, held  when they were last changed, and how many permits they are together
--   length()          how many there are
--   entry(rank)       the end, cost and name of one, from rank 0
--   up_to(time)       how many end up to then
--   find(id)          the end, cost and lasting time of one; nothing if it is not there
--   move(by)          moves all ends back in time
--   remove(id, cost)  takes one out
--   insert(id, cost, ttl, ends_at)
--   changed(at)       notes the time of a change

local concurrency = {}

local max = math.max

local function rebase(leases, now, ttl)
  local by = set_back(leases.changed_at, now, ttl)
  if by > 0 then
    leases.changed(minus(leases.changed_at, by))
    leases.move(by)
  end
end

-- When `excess` permits will have ended.
local function frees(leases, ended, excess)
  local freed, ends_at = 0, 0
  for rank = ended, leases.length() - 1 do
    local cost
    ends_at, cost = leases.entry(rank)
    freed = freed + cost
    if freed >= excess then
      break
    end
  end
  return ends_at
end

-- Decides one charge and changes nothing; `charge` takes what was allowed.
function concurrency.decide(limit, leases, cost, now)
  local by = set_back(leases.changed_at, now, limit.lease_ttl)
  local at = max(now, minus(leases.changed_at, by))
  local ended = leases.up_to(at + by)
  local held = leases.held
  for rank = 0, ended - 1 do
    local _, ended_cost = leases.entry(rank)
    held = held - ended_cost
  end

  local allowed, retry = false, NEVER
  if cost == 0 or held + cost <= limit.holders then
    allowed, retry = true, NOW
  elseif cost <= limit.holders then
    local excess = held - (limit.holders - cost)
    retry = minus(minus(frees(leases, ended, excess), by), now)
  end
  local taken = allowed and cost or 0
  local length = leases.length()
  local last_end = length > 0 and minus((leases.entry(length - 1)), by) or 0
  local reset_at = now
  if taken > 0 then
    reset_at = max(last_end, plus(at, limit.lease_ttl))
  elseif held > 0 then
    reset_at = last_end
  end
  return outcome_of(allowed, retry, limit.holders, held + taken, reset_at, at)
end

-- Moves the leases to the present if their clock has been set back since.
function concurrency.rebase(limit, leases, now)
  rebase(leases, now, limit.lease_ttl)
end

-- Takes a lease that was allowed, and drops those that have ended. A lease that is there already
-- grows by `cost` and lasts its whole time again.
function concurrency.charge(limit, leases, id, cost, now)
  rebase(leases, now, limit.lease_ttl)
  local at = max(now, leases.changed_at)
  local ended = {}
  for rank = 0, leases.up_to(at) - 1 do
    local _, ended_cost, ended_id = leases.entry(rank)
    ended[ended_id] = ended_cost
  end
  for ended_id, ended_cost in pairs(ended) do
    leases.remove(ended_id, ended_cost)
  end
  leases.changed(at)
  local _, more = leases.find(id)
  if more then
    leases.remove(id, more)
    cost = cost + more
  end
  leases.insert(id, cost, limit.lease_ttl, plus(at, limit.lease_ttl))
end

-- Ends a lease before its time. False if it has ended already or never was. Without a time, as of
-- the last change.
function concurrency.release(leases, id, now)
  now = now or leases.changed_at
  local ends_at, cost = leases.find(id)
  if not ends_at then
    return false
  end
  leases.remove(id, cost)
  return ends_at > now
end

-- Lets a lease last its whole time again from `now`. False if it has ended already. Without a time,
-- as of the last change.
function concurrency.renew(leases, id, now)
  now = now or leases.changed_at
  local ends_at, cost, ttl = leases.find(id)
  if not ends_at then
    return false
  end
  rebase(leases, now, ttl)
  local at = max(now, leases.changed_at)
  ends_at = leases.find(id)
  leases.remove(id, cost)
  if ends_at <= at then
    return false
  end
  leases.changed(at)
  leases.insert(id, cost, ttl, plus(at, ttl))
  return true
end

return concurrency
