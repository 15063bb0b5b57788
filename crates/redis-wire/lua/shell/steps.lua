-- Steps, as they are written in KEYS and ARGV, read one after the other and answered.
--
-- Charges of one limit on one key each, at the time of Redis, come in runs: the limit and the cost
-- once, and how many keys. Those that the fast path admits are answered by two numbers and no list:
-- what remains and when all of it is back. step.lua decides the others, and all other steps.

local reply, answers = { time }, 1

local function answer(is_done, result)
  if not is_done then
    result = type(result) == 'table' and (result.text or result.err) or tostring(result)
  end
  answers = answers + 1
  reply[answers] = result
end

-- A charge that the fast path leaves open.
local function decide(limit, key, cost)
  local form = module(limit.kind .. '_form')
  local task = { form = form, limit = limit, cost = cost, first = 1, key = key }
  answer(pcall(module('step').run, { op = 'charge', now = time, lease = '', is_supplied = false, tasks = { task } }))
end

local function run_of_charges()
  local limit, cost, count = limits[number()], number(), number()
  local charge = module(limit.kind .. '_fast')
  for index = next_key + 1, next_key + count do
    local key = KEYS[index]
    local is_done, remaining, reset_at = pcall(charge, limit, key, cost, time)
    if is_done and remaining then
      reply[answers + 1], reply[answers + 2] = remaining, reset_at
      answers = answers + 2
    elseif is_done then
      decide(limit, key, cost)
    else
      answer(false, remaining)
    end
  end
  next_key = next_key + count
  return count
end

local left = number()
while left > 0 do
  local op = text()
  if op == 'charges' then
    left = left - run_of_charges()
  else
    local step = module('step')
    answer(pcall(step.run, step.read(op)))
    left = left - 1
  end
end
return reply
