-- The shell around the algorithms: all that reads and writes Redis.
--
-- One call carries a list of steps, decided in order. KEYS and ARGV are flat, as wire.rs writes them.
-- The reply is the time of Redis in microseconds and one answer for each step: a list, or the two
-- numbers of steps.lua, or a text that says why this step failed. A step reads and checks every key first, then decides, then writes;
-- what one step meets is no concern of the others.

local ceil, max, min = math.ceil, math.max, math.min
local format, match = string.format, string.match

-- How long state with supplied times is kept: the store's clock does not say when it is idle.
local A_DAY = 86400000
-- Members are written to a sorted set in groups of this size, because a call takes a limited number
-- of values.
local AT_ONCE = 1000

-- Raises what Redis says is wrong, as a text.
local call = redis.call

local function unreadable(key)
  error({ text = 'UNREADABLE the value of key `' .. key .. '` is not a state of this limit' }, 0)
end

-- The whole number that `text` writes, if it is one that a state can hold.
local function whole_number(text)
  local number = tonumber(text)
  return number and number <= MAX and number or nil
end

-- The milliseconds at which a key that matters until `time` may go.
local function expiry(time)
  return ceil(time / 1000) + 1
end

local function expire(step, key, reset_at)
  if step.is_supplied then
    call('PEXPIRE', key, A_DAY)
  else
    call('PEXPIREAT', key, expiry(reset_at))
  end
end

-- Fails, before anything is written, while the slot of this key is being moved from here: what is not here then may be
-- there, and a key that is emptied cannot be filled again. No key has this name.
local function stays(key)
  call('TYPE', key .. ':moves')
end

-- This answer for a request that took nothing: its verdict, over the state as it still is.
local function over(outcome, untouched)
  outcome[REMAINING], outcome[RESET_AT] = untouched[REMAINING], untouched[RESET_AT]
  return outcome
end

-- A form that has all functions of a module in addition to its own. Most calls need none of them.
local function form_of(name)
  return setmetatable({}, {
    __index = function(_, field)
      return module(name)[field]
    end,
  })
end

-- What comes next in KEYS and ARGV.
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

-- The limits of the call, by index.
local limits = {}

-- The time of Redis, read once.
local clock = call('TIME')
local time = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
