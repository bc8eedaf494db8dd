-- What stands before a cull as before a retirement: a reason and a wait when it is shut. Its own gates each of them
-- adds as gates.rest(). With what only they need it is the twin of sidecar/core/gates.py.

local gates = {}

-- The first that is shut. A hold stops everybody, and who was granted before and still is missing by that nothing else.
function gates.shut(hold, is_standing, limits)
  if hold then
    return 'hold', hold[1] - now
  end
  if is_standing then
    return nil
  end
  local reason, wait = gates.memory(limits)
  if reason then
    return reason, wait
  end
  return gates.rest()
end

-- The reply to who is refused, with used and capacity as the tokens or the leases are counted.
function gates.denial(reason, wait, used, capacity, hold)
  return {
    0, reason, used, capacity, wait + now - told, fleet.alive, roster.wanting, roster.cause(),
    reason == 'hold' and hold or {}, state.born, state.grants,
  }
end

-- Nothing for a window after a loss, nor before the fleet could be heard (again): half as long as a member lives.
function gates.memory(limits)
  local back = state.lost + limits.window + 1
  local grown = math.max(state.born, state.gathering) + math.floor(limits.expiry / 2)
  if limits.lost_is_empty and state.lost > 0 and now < back then
    return 'lost_memory', back - now
  end
  if limits.lost_is_empty and now < grown then
    return 'newborn', grown - now
  end
end

-- The fleet after it; a service that had one member for the past hour may lose it.
function gates.floor(size)
  if trials.missing + fleet.alive == 1 and now - math.max(state.born, state.several) >= HOUR then
    return split(1, mine.index, mine.servers) == 0 and 'share' or nil, mine.beat
  end
  local after = fleet.alive - (fleet.is_caller_alive and 1 or 0)
  if after < size.floor then
    return after > 0 and 'floor' or 'last', mine.beat
  end
  if trials.missing >= size.gone and trials.own() >= size.gone then
    return 'share', mine.beat
  end
end
