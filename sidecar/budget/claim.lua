-- A claim: whether its container may go down. After turn, terms, asked, records, roster, incident, culls, trials,
-- leases, fleet, shares, sizes, gates, evicted and grants.
--
-- ARGV[4..7]  instance, incarnation, kind of its errors, claim id
--
-- Reply: { 1, "granted" or "replayed", used, capacity, canary (1 or 0), alive, wanting, born, grants }
--     or { 0, reason, used, capacity, wait in microseconds, alive, wanting, cause,
--          { until, author, reason, instance or "" } or {}, born, grants }
--
-- * A claim id that was granted within the window is granted again and costs nothing. Its grant counts from then on
--   (not with "fixed", which knows no claim ids), for only now the container goes down, and a grant that has left the
--   window makes no more room for its claim than for any other: late replays and fresh grants would add up otherwise.
-- * Once granted the container counts as missing, also while its reply is on the way. One that asks again for the
--   same cull has passed the gates before; only a hold stops it. One that was replaced meanwhile passes them again.
-- * Of what a grant writes the grant itself comes first: when anything after it fails, asking again is a replay.
-- * A denied claim leaves a sign of life, and with "fixed" it counts.
-- * Where nothing can be written the fleet is not known: the brake and the floor are passed over, and whom the other
--   gates let pass hears the error, unless it asks again for the same cull.

local instance, incarnation, kind, claim_id = unpack(ARGV, 4, 7)

local limits = fleet.hear({ instance = instance, incarnation = incarnation, presence = 'wants', kind = kind })
evicted.notice(limits)
local size = sizes.of(fleet.alive + trials.missing, limits.is_earning)
local used, used_wait = grants.usage(size.capacity, limits.window, limits.since)
local granted_at, grant_key = grants.grant_of(claim_id)
local is_known = granted_at ~= nil and now - granted_at <= limits.window
local cull = trials.cull_of(instance)
local is_standing = is_known and cull and cull.claim_id == claim_id and not cull.is_lease
local hold = hold_on(instance)

-- -- the gates: a reason and a wait when one is shut -----------------------------------------------------------------

-- The brake, and the fleet after the cull.
function gates.fleet()
  if not incident.may_cull(limits.window) then
    return 'brake', mine.beat
  end
  return gates.floor(size)
end

-- The article's counter is of the caller's clock, and so is the wait.
function gates.fixed()
  local number = refused and 0 or grants.counted()
  used = math.min(number, size.capacity + 1) - 1
  if number > size.capacity then
    return 'window', size.capacity > 0 and tonumber(ARGV[8]) - (now - told) or limits.window
  end
end

function gates.pace()
  local spaced = state.newest > 0 and state.newest + limits.spacing - now or 0
  if spaced > 0 then
    return 'spacing', spaced
  end
  if mine.strategy == 'fixed' then
    return gates.fixed()
  end
  if used_wait > 0 then
    return 'window', used_wait
  end
  local wait = limits.is_earning and grants.earned_wait(size.earned, limits.window) or 0
  if wait > 0 then
    return 'earn_max', wait
  end
end

-- A token that was granted before has no pace to keep.
function gates.rest()
  if trials.is_useless(kind, limits.useless_after) then
    return 'useless', HOUR
  end
  local reason, wait
  if not refused then
    reason, wait = gates.fleet()
  end
  if reason or is_known then
    return reason, wait
  end
  return gates.pace()
end

-- -- the answer ----------------------------------------------------------------------------------------------------

local function grant(is_canary)
  local is_renewed = not is_known or mine.strategy ~= 'fixed'
  if is_renewed then
    grants.note(grant_key, claim_id, limits.window)
  end
  if is_canary then
    set('canary', now)
  end
  if not is_known then
    add('grants', 1)
  end
  roster.left(instance)
  trials.culled(instance, {
    own = 1, at = (is_renewed or not cull) and now or cull.at, occupied = now + limits.expiry,
    claim_id = claim_id, incarnation = incarnation, kind = kind,
  })
end

local reason, wait = gates.shut(hold, is_standing, limits)
if reason then
  roster.note_wish()
  save()
  return gates.denial(reason, wait, used, size.capacity, hold)
end
local wanting, is_canary = roster.wanting, state.brake == 'on' and not is_standing
grant(is_canary)
save()
if refused and not is_standing then
  return refused
end
return {
  1, is_known and 'replayed' or 'granted', used + (is_known and 0 or 1), size.capacity, is_canary and 1 or 0,
  fleet.alive, wanting, state.born, state.grants,
}
