-- Files as modules: each runs when it is first asked for, as Redis makes all functions that a script
-- mentions anew with every call, and most calls need few of them.

local modules = {}
local run_module

local function module(name)
  local loaded = modules[name]
  if not loaded then
    loaded = run_module(name)
    modules[name] = loaded
  end
  return loaded
end
