-- Changes a charge to what it costs after all. Answers what that did: given back, charged in addition, not
-- charged for lack of room; and what remains. If it `is_charged` no more, because all of it was given back when its
-- reservation ended, what it costs is charged as far as there is room: so settled costs never exceed the limit.
return function(task, step, actual, is_reset, is_charged)
  local form, cost = task.form, task.cost
  local given_back, overrun, uncharged = 0, 0, 0
  local function charge(more)
    task.cost = more
    local room = max(form.ask(task, 0, step.now)[REMAINING], 0)
    form.settle(task, step)
    return min(more, room)
  end
  if task.companion then
    form.give_back(task, step)
  elseif is_reset then
    -- What it held was forgiven.
  elseif is_charged == false then
    local charged = actual > 0 and charge(actual) or 0
    given_back, overrun, uncharged = max(cost - actual, 0), max(charged - cost, 0), actual - charged
  elseif actual < cost then
    task.cost = cost - actual
    given_back = form.given_back(task, step)
    form.give_back(task, step)
  elseif actual > cost then
    overrun = charge(actual - cost)
    uncharged = actual - cost - overrun
  end
  return { given_back, overrun, uncharged, max(form.ask(task, 0, step.now)[REMAINING], 0) }
end
