-- What every claim and every beat does to the fleet: the twin of sidecar/core/hearing.py.

local fleet = { alive = 0, policies = 0, is_caller_alive = false }

-- -- grants that are given back, holds that end ----------------------------------------------------------------------

function fleet.earn(claim_id)
  local at = redis.call('ZSCORE', KEY.grants, claim_id)
  if at then
    has('e')
    put('ZADD', KEY.earned, at, claim_id)
    write('ZREM', KEY.grants, claim_id)
  end
end

function fleet.unearn()
  local flat = redis.call('ZRANGE', KEY.earned, 0, -1, 'WITHSCORES')
  for place = 1, #flat, 2 do
    put('ZADD', KEY.grants, flat[place + 1], flat[place])
  end
  write('DEL', KEY.earned)
  has_perhaps_none('e')
end

function fleet.learn_from(trial, limits)
  if not trial then
    return
  end
  trials.learn(trial, state.brake == 'on' or state.brake == 'closed')
  if trial.outcome ~= 'unclear' then
    incident.judged(trial.at, trial.outcome == 'helped')
  end
  if trial.outcome == 'helped' and limits.is_earning then
    fleet.earn(trial.claim_id)
  end
end

function fleet.end_holds()
  local flat = redis.call('HGETALL', KEY.hold)
  for place = 1, #flat, 2 do
    if unpacked(flat[place + 1], 1, 0) <= now then
      write('HDEL', KEY.hold, flat[place])
      has_perhaps_none('h')
    end
  end
end

-- -- every call ----------------------------------------------------------------------------------------------------

-- Who knows of another birth, or of more grants than this bucket does, shows that memory was lost.
function fleet.recognise()
  local known_born, known_grants, lost_at = tonumber(ARGV[2]), tonumber(ARGV[3]), 0
  if state.born == 0 then
    set('born', now)
    lost_at = known_born > 0 and now or 0
  elseif known_born > 0 and known_born < state.born then
    lost_at = state.born
  elseif known_born > state.born or known_grants > state.grants then
    lost_at = now
  end
  if lost_at > state.lost then
    set('lost', lost_at)
    add('losses', 1)
  end
  set('grants', math.max(state.grants, known_grants))
end

function fleet.strike_off(limits)
  local silent_ones = roster.silent(limits.expiry)
  if #silent_ones > 0 and 2 * #silent_ones >= redis.call('ZCARD', KEY.alive) then
    set('gathering', now)
  end
  for _, instance in ipairs(silent_ones) do
    roster.departs(instance, limits.window)
    fleet.learn_from(trials.lost(instance), limits)
  end
  limits.since = us(now - limits.window)
  trials.expire(limits.since)
  if may_have('l') then
    leases.expire()
  end
  if may_have('h') then
    fleet.end_holds()
  end
end

function fleet.goes_down(beat, limits)
  local instance, incarnation, lease = beat.instance, beat.incarnation, beat.lease
  local is_lease = lease ~= ''
  roster.left(instance)
  if is_lease then
    fleet.learn_from(trials.lost(instance), limits)
  else
    fleet.learn_from(trials.watch(instance, incarnation, limits.probation, 'down'), limits)
  end
  local is_news = trials.is_down(instance, {
    own = 0, at = now, occupied = now + limits.expiry, is_lease = is_lease, incarnation = incarnation,
    claim_id = is_lease and lease or beat.claim_id, kind = is_lease and '' or beat.kind,
  })
  if is_news and is_lease and mine.index == 0 then
    leases.down(instance, lease, incarnation, limits.window)
  end
end

function fleet.take_in(beat, limits)
  local instance, incarnation, presence = beat.instance, beat.incarnation, beat.presence
  if presence == 'gone' then
    roster.departs(instance, limits.window)
    fleet.learn_from(trials.is_gone(instance), limits)
    return
  end
  if presence == 'wants' and may_have('u') then
    trials.suffered(beat.kind)
  end
  if presence == 'down' then
    fleet.goes_down(beat, limits)
    return
  end
  if trials.is_still_missing(instance, incarnation, now + limits.expiry) then
    roster.left(instance)
    return
  end
  local is_newcomer = beat.is_first and trials.missing > 0
    and not trials.is_replaced(instance) and not roster.is_known(instance, limits.window)
    and not (may_have('l') and leases.slot_of(instance))
  if is_newcomer or may_have('r') or trials.cull_of(instance) then
    local place = trials.arrived(instance, incarnation, is_newcomer)
    if place and may_have('l') then
      leases.arrived(place, instance)
    end
  end
  if presence == 'well' and may_have('l') then
    leases.is_well(instance, incarnation)
  end
  if may_have('t') then
    fleet.learn_from(trials.watch(instance, incarnation, limits.probation, presence), limits)
  end
  roster.heard(instance, presence == 'wants' and beat.kind)
  fleet.is_caller_alive = true
end

-- Takes in a sign of life; the limits in force.
function fleet.hear(beat)
  fleet.recognise()
  local is_only_one = not is_new_policy and redis.call('ZCARD', KEY.policy) == 1
  fleet.policies = is_only_one and 1 or read_policies(true)
  local limits = strictest()
  keep_for(limits.window)
  if is_new_policy then
    write('PEXPIREAT', KEY.policy, ms(state.kept))
  end
  if not limits.is_earning and may_have('e') then
    fleet.unearn()
  end
  fleet.strike_off(limits)
  fleet.take_in(beat, limits)
  fleet.alive = redis.call('ZCARD', KEY.alive)
  if fleet.alive + trials.missing > 1 and now - state.several >= MINUTE then
    set('several', now)
  end
  incident.look(fleet.alive, limits)
  return limits
end

-- -- answers -------------------------------------------------------------------------------------------------------

-- { alive, wanting, missing, brake, cause, policies, losses, helped, unhelped, unclear, { useless kinds },
--   { until, author, reason, instance or "" } or {}, leases in use, tally of the state, tokens in use, and how many
--   there are, as a claim has them, born, grants }
function fleet.shown(instance, limits, used, capacity)
  return {
    fleet.alive, roster.wanting, trials.missing, state.brake, roster.cause(), fleet.policies, state.losses,
    state.helped, state.unhelped, state.unclear, may_have('u') and trials.useless(limits.useless_after) or {},
    hold_on(instance) or {}, may_have('l') and leases.used() or 0, state.tally, used, capacity,
    state.born, state.grants,
  }
end
