-- The brake, and the canary that loosens it: the twin of sidecar/core/incident.py.

local incident = {}

function incident.look(alive, limits)
  local brake = limits.brake
  if brake > 0 and roster.wanting >= 3 and roster.wanting * 1000 >= brake * alive then
    if state.brake == 'off' then
      set('began', now)
      set('brake', 'on')
    end
    set('held', now)
  elseif state.brake ~= 'off' and (brake == 0 or now - state.held > limits.probation) then
    set('brake', 'off')
  end
end

function incident.judged(culled_at, helped)
  if state.brake == 'on' and culled_at >= state.began then
    set('brake', helped and 'open' or 'closed')
  end
end

function incident.may_cull(window)
  if state.brake == 'on' then
    return mine.index == 0 and (state.canary == 0 or now - state.canary > window)
  end
  return state.brake ~= 'closed'
end
