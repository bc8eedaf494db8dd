-- What became of every cull: with culls.lua, the part that most calls need, the twin of sidecar/core/trials.py.
--
-- All of these functions together take as long to define as a few questions to Redis, and most calls need none: they
-- are defined when the first of them is called.

local function define()
  -- -- the missing -------------------------------------------------------------------------------------------------

  function trials.occupy(instance, cull, occupied)
    if cull.occupied ~= occupied then
      cull.occupied = occupied
      trials.write_cull(instance, cull)
    end
  end

  function trials.found(instance)
    trials.missing = trials.missing - 1
    culls[instance] = false
    write('ZREM', KEY.missing, instance)
    write('ZREM', KEY.down, instance)
    write('HDEL', KEY.culls, instance)
    has_perhaps_none('m')
  end

  function trials.is_replaced(instance)
    return may_have('r') and redis.call('ZSCORE', KEY.replaced, instance)
  end

  function trials.is_down(instance, claim_id, incarnation, kind, occupied)
    local cull = trials.cull_of(instance)
    if cull and cull.claim_id == claim_id then
      trials.occupy(instance, cull, occupied)
      write('ZADD', KEY.down, us(math.max(cull.at, now)), instance)
    elseif trials.is_replaced(instance) then
      write('ZADD', KEY.replaced, now_text, instance)
    elseif claim_id ~= '' then
      trials.culled(instance, {
        own = 0, at = now, occupied = occupied, claim_id = claim_id, incarnation = incarnation, kind = kind,
      })
    end
  end

  -- The place that is missing longest, of those whose sidecar has gone too; of two the first by name.
  function trials.vacant()
    for _, instance in ipairs(trials.missing > 0 and redis.call('ZRANGE', KEY.missing, 0, -1) or {}) do
      local cull = trials.cull_of(instance)
      if cull and cull.occupied <= now then
        return instance
      end
    end
  end

  -- How many are missing by grants of this bucket.
  function trials.own()
    local count = 0
    for _, packed in ipairs(trials.missing > 0 and redis.call('HVALS', KEY.culls) or {}) do
      count = count + tonumber(string.sub(packed, 1, 1))
    end
    return count
  end

  -- -- replacements ------------------------------------------------------------------------------------------------

  function trials.trial_of(instance)
    local packed = may_have('t') and redis.call('HGET', KEY.trials, instance)
    if packed then
      local at, well, claim_id, incarnation, kind = unpacked(packed, 2, 3)
      return { at = at, well = well, claim_id = claim_id, incarnation = incarnation, kind = kind }
    end
  end

  function trials.write_trial(instance, trial)
    has('t')
    put('HSET', KEY.trials, instance, pack({ trial.at, trial.well }, { trial.claim_id, trial.incarnation, trial.kind }))
  end

  function trials.judge(instance, trial, outcome)
    write('HDEL', KEY.trials, instance)
    has_perhaps_none('t')
    trial.outcome = outcome
    return trial
  end

  function trials.lost(instance)
    local trial = trials.trial_of(instance)
    return trial and trials.judge(instance, trial, 'unclear')
  end

  function trials.is_gone(instance)
    local cull = trials.cull_of(instance)
    if cull then
      trials.occupy(instance, cull, 0)
    end
    return trials.lost(instance)
  end

  function trials.arrived(instance, incarnation, is_newcomer)
    if may_have('r') and write('ZREM', KEY.replaced, instance) > 0 then
      has_perhaps_none('r')
    end
    local place = trials.cull_of(instance) and instance or is_newcomer and trials.vacant()
    local cull = place and trials.cull_of(place)
    if not cull then
      return
    end
    trials.found(place)
    trials.write_trial(instance, {
      at = cull.at, well = 0, claim_id = cull.claim_id, incarnation = incarnation, kind = cull.kind,
    })
    if place ~= instance then
      has('r')
      put('ZADD', KEY.replaced, now_text, place)
    end
  end

  -- The trial with its outcome, once there is one.
  function trials.watch(instance, incarnation, probation, presence)
    local trial = trials.trial_of(instance)
    if not trial then
      return nil
    end
    if trial.incarnation ~= incarnation then
      return trials.judge(instance, trial, 'unclear')
    end
    if presence == 'wants' or presence == 'down' then
      return trials.judge(instance, trial, 'unhelped')
    end
    if presence == 'starting' then
      return nil
    end
    local is_first = trial.well == 0
    trial.well = is_first and now or trial.well
    if now - trial.well >= probation then
      return trials.judge(instance, trial, 'helped')
    end
    if is_first then
      trials.write_trial(instance, trial)
    end
  end

  -- -- kinds that culls do not help against ------------------------------------------------------------------------

  function trials.note_kind(kind, seen)
    sheet[kind] = seen
    if seen then
      has('u')
      put('HSET', KEY.useless, kind, us(seen.count) .. '|' .. us(seen.at))
    else
      write('HDEL', KEY.useless, kind)
      has_perhaps_none('u')
    end
  end

  -- Under the brake a failure tells of the incident and not of the kind: whom it leaves stuck, culls may help.
  function trials.learn(trial, is_braked)
    add(trial.outcome, 1)
    for kind, seen in pairs(sheet) do
      if now - seen.at > HOUR then
        trials.note_kind(kind, nil)
      end
    end
    local seen = sheet[trial.kind]
    if trial.outcome == 'helped' and seen then
      trials.note_kind(trial.kind, nil)
    elseif trial.outcome == 'unhelped' and not is_braked then
      trials.note_kind(trial.kind, { count = (seen and seen.count or 0) + 1, at = now })
    end
  end

  function trials.suffered(kind)
    local seen = sheet[kind]
    if seen then
      trials.note_kind(kind, now - seen.at <= HOUR and { count = seen.count, at = now } or nil)
    end
  end

  function trials.useless(after)
    local kinds = {}
    for kind in pairs(sheet) do
      if trials.is_useless(kind, after) then
        kinds[#kinds + 1] = kind
      end
    end
    return kinds
  end
end

setmetatable(trials, {
  __index = function(_, name)
    setmetatable(trials, nil)
    define()
    return trials[name]
  end,
})
