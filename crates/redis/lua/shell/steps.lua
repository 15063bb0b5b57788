-- Steps, as they are written in KEYS and ARGV.

local made = {}
local makers = {
  bucket = bucket_form,
  fixed_window = fixed_window_form,
  sliding_window_counter = counter_form,
  sliding_window_slots = slots_form,
  sliding_window_log = log_form,
  concurrency = concurrency_form,
}

local function form_of(name)
  local form = made[name]
  if not form then
    form = makers[name]()
    made[name] = form
  end
  return form
end

local next_key, next_argument = 0, 0

local function key()
  next_key = next_key + 1
  return KEYS[next_key]
end

local function text()
  next_argument = next_argument + 1
  return ARGV[next_argument]
end

local function number()
  next_argument = next_argument + 1
  return tonumber(ARGV[next_argument])
end

local function read_task(op)
  local name = text()
  local form = form_of(name)
  local task = { form = form, cost = number(), first = number(), key = key() }
  task.companion = name == 'concurrency' and key() or nil
  task.limit = form.limit(text, number)
  if op == 'give_back' then
    task.charged_at = number()
  elseif op == 'lease' then
    task.want = { units = number(), previous = text(), used = number(), lasts = number() }
  end
  return task
end

local function read_step(time)
  local step = { op = text(), now = number(), lease = text(), tasks = {}, there = {}, keys = {} }
  step.is_supplied = step.now >= 0
  if not step.is_supplied then
    step.now = time
  end
  if step.lease ~= '' and text() == 'registered' then
    step.register = key()
    for index = 1, number() do
      step.there[index] = { key = text(), ttl = number() }
    end
  end
  for index = 1, number() do
    step.keys[index] = key()
  end
  for index = 1, number() do
    step.tasks[index] = read_task(step.op)
  end
  return step
end

-- Reads and checks every state, then does what is asked.
local function run(step)
  for index, task in ipairs(step.tasks) do
    local first = step.tasks[task.first]
    task.place = task.first < index and first.place or task.form.open(task.key, task.companion, task.limit)
  end
  return ops[step.op](step)
end

local clock = call('TIME')
local time = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local reply = { time }
for index = 1, number() do
  local is_done, answer = pcall(run, read_step(time))
  if not is_done then
    answer = type(answer) == 'table' and (answer.text or answer.err) or tostring(answer)
  end
  reply[index + 1] = answer
end
return reply
