-- Changes a charge to what it costs after all. Answers what that did: given back, charged in addition, not
-- charged for lack of room; and what remains.
return function(task, step, actual, is_reset)
  local form, cost = task.form, task.cost
  local given_back, overrun, uncharged = 0, 0, 0
  if task.companion then
    form.give_back(task, step)
  elseif is_reset then
    -- What it held was forgiven.
  elseif actual < cost then
    task.cost = cost - actual
    given_back = form.given_back(task, step)
    form.give_back(task, step)
  elseif actual > cost then
    task.cost = actual - cost
    overrun = min(task.cost, max(form.ask(task, 0, step.now)[REMAINING], 0))
    uncharged = task.cost - overrun
    form.settle(task, step)
  end
  return { given_back, overrun, uncharged, max(form.ask(task, 0, step.now)[REMAINING], 0) }
end
