-- What became of every cull: with culls.lua, the part that most calls need, the twin of sidecar/core/trials.py.

-- The tally of the state is "helped|3|5|redis" and more of these, one after the other: how so many culls of a kind
-- ended, with the length of its name; of twenty kinds, and of all others together.

local MOST_KINDS = 20
local LEDGER_KEPT = 35 * DAY -- after its last entry, as note.lua is told

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

  -- Takes in a container that says it is down; whether that is news.
  function trials.is_down(instance, heard)
    local cull = trials.cull_of(instance)
    if cull and cull.claim_id == heard.claim_id and cull.is_lease == heard.is_lease then
      trials.occupy(instance, cull, heard.occupied)
      write('ZADD', KEY.down, us(math.max(cull.at, now)), instance)
    elseif trials.is_replaced(instance) then
      write('ZADD', KEY.replaced, now_text, instance)
    elseif heard.claim_id ~= '' then
      trials.culled(instance, heard)
      return true
    end
    return false
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
      local own, at, well, claim_id, incarnation, kind = unpacked(packed, 3, 3)
      return { own = own, at = at, well = well, claim_id = claim_id, incarnation = incarnation, kind = kind }
    end
  end

  function trials.write_trial(instance, trial)
    has('t')
    local numbers = { trial.own, trial.at, trial.well }
    put('HSET', KEY.trials, instance, pack(numbers, { trial.claim_id, trial.incarnation, trial.kind }))
  end

  function trials.judge(instance, trial, outcome)
    write('HDEL', KEY.trials, instance)
    has_perhaps_none('t')
    trial.outcome = outcome
    trials.tell(outcome, instance, trial, '')
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

  -- Lets a container take its own place or a vacant one, if there is one; whose it is.
  function trials.arrived(instance, incarnation, is_newcomer)
    if may_have('r') and write('ZREM', KEY.replaced, instance) > 0 then
      has_perhaps_none('r')
    end
    local place = trials.cull_of(instance) and instance or is_newcomer and trials.vacant()
    local cull = place and trials.cull_of(place)
    if not cull then
      return nil
    end
    trials.found(place)
    if not cull.is_lease then
      trials.write_trial(instance, {
        own = cull.own, at = cull.at, well = 0, claim_id = cull.claim_id, incarnation = incarnation, kind = cull.kind,
      })
    end
    trials.tell('replaced', place, cull, place ~= instance and instance or '')
    if place ~= instance then
      has('r')
      put('ZADD', KEY.replaced, now_text, place)
    end
    return place
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

  -- -- the ledger ---------------------------------------------------------------------------------------------------

  -- Writes down what nobody else knows: what became of a cull. Of several servers the one does that granted it. A kind
  -- that is missing tells a retirement. Nobody is refused anything because the ledger cannot be written.
  function trials.tell(what, instance, cull, reason)
    if refused or cull.own == 0 and mine.servers > 1 then
      return
    end
    local kind = cull.is_lease and '' or cull.kind ~= '' and cull.kind or 'unknown'
    local seconds = string.format('%.3f', math.max(0, now - cull.at) / 1000000)
    local told, fields = {}, { 'what', what, 'instance', instance, 'kind', kind, 'reason', reason, 'seconds', seconds }
    for place = 2, #fields, 2 do
      if fields[place] ~= '' then
        told[#told + 1], told[#told + 2] = fields[place - 1], fields[place]
      end
    end
    redis.pcall('XADD', KEY.events, 'MAXLEN', '~', ARGV[#ARGV], '*', unpack(told))
    redis.pcall('PEXPIREAT', KEY.events, ms(now + LEDGER_KEPT))
  end

  -- -- how many ended how -------------------------------------------------------------------------------------------

  -- { { outcome, kind, count }, ... }, and which kinds these are, and how many.
  function trials.tally()
    local rows, kinds, number, place = {}, {}, 0, 1
    while place <= #state.tally do
      local _, last, outcome, count, length = string.find(state.tally, '^(%l+)|(%d+)|(%d+)|', place)
      local kind = string.sub(state.tally, last + 1, last + length)
      rows[#rows + 1] = { outcome, kind, tonumber(count) }
      number = number + (kinds[kind] and 0 or 1)
      kinds[kind], place = true, last + length + 1
    end
    return rows, kinds, number
  end

  function trials.count(outcome, kind)
    add(outcome, 1)
    local rows, kinds, number = trials.tally()
    kind = (kinds[kind] or number < MOST_KINDS) and kind or 'other'
    local parts, is_new = {}, true
    for place, row in ipairs(rows) do
      local is_it = row[1] == outcome and row[2] == kind
      is_new = is_new and not is_it
      parts[place] = trials.tallied(row[1], row[2], row[3] + (is_it and 1 or 0))
    end
    set('tally', table.concat(parts) .. (is_new and trials.tallied(outcome, kind, 1) or ''))
  end

  function trials.tallied(outcome, kind, count)
    return outcome .. '|' .. us(count) .. '|' .. #kind .. '|' .. kind
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
    trials.count(trial.outcome, trial.kind)
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

defined_late(trials, define)
