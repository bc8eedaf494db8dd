-- Whether a container may go for its age: under one of so many leases, and without a token. After turn, terms, asked,
-- records, roster, incident, culls, trials, leases, fleet, shares, sizes, gates and evicted.
--
-- ARGV[4..6]  instance, incarnation, holder word
-- ARGV[7]     leases at most: a count, or with "p" so many thousandths of the fleet
-- ARGV[8]     microseconds from the grant on after which the slot is free again, whatever becomes of the container
--
-- Reply: { 1, "granted" or "replayed", used, capacity, microseconds that the lease lasts, alive, wanting, born, grants }
--     or as that of a claim; with leases for tokens
--
-- * Once granted the container counts as missing, as after a claim; who asks again under the same holder word while it
--   has its slot is granted again. Whoever suffers goes first.
-- * Who asks for its age is well. A replacement on trial that goes before its probation is over tells nothing.
-- * Where nothing can be written nobody goes, unless it had been granted before.

local instance, incarnation, holder = unpack(ARGV, 4, 6)

local limits = fleet.hear({ instance = instance, incarnation = incarnation, presence = 'well' })
evicted.notice(limits)
local size = sizes.of(fleet.alive + trials.missing, limits.is_earning)
local most = at_most(ARGV[7], fleet.alive + trials.missing)
local used = may_have('l') and leases.used() or 0
local slot, cull = leases.slot_of(instance), trials.cull_of(instance)
local is_holder = slot and slot.holder == holder
local is_standing = is_holder and cull and cull.is_lease and cull.claim_id == holder
local hold = hold_on(instance)

-- A slot of its own that has not been answered for is one that it may still have.
function gates.slots()
  local others = used - (slot and 1 or 0)
  if others >= most or slot and not is_holder then
    return 'slots', mine.beat
  end
end

-- Whether somebody wants a cull who may get one: for a kind that culls do not help with nobody has to wait.
local function may_cull_somebody()
  for _, kind in ipairs(roster.wanting > 0 and redis.call('ZRANGE', KEY.causes, 0, -1) or {}) do
    if not trials.is_useless(kind, limits.useless_after) then
      return true
    end
  end
end

function gates.rest()
  if may_cull_somebody() then
    return 'culls', mine.beat
  end
  if state.brake ~= 'off' then
    return 'brake', mine.beat
  end
  local reason, wait = gates.floor(size)
  if reason then
    return reason, wait
  end
  return gates.slots()
end

-- The lease comes first: when anything after it fails, asking again finds it.
local until_us = is_standing and slot.until_us or now + tonumber(ARGV[8])

local function grant()
  leases.take(instance, { holder = holder, incarnation = incarnation, until_us = until_us })
  set('leased', now)
  if not is_standing then
    add('grants', 1)
    fleet.learn_from(trials.lost(instance), limits)
  end
  roster.left(instance)
  trials.culled(instance, {
    own = 1, at = now, occupied = now + limits.expiry, is_lease = true,
    claim_id = holder, incarnation = incarnation, kind = '',
  })
end

local reason, wait = gates.shut(hold, is_standing, limits)
if refused and not hold and not is_standing then
  return refused
end
if reason then
  save()
  return gates.denial(reason, wait, used, most, hold)
end
local alive, wanting = fleet.alive, roster.wanting
grant()
save()
if refused and not is_standing then
  return refused
end
return {
  1, is_standing and 'replayed' or 'granted', used + (is_holder and 0 or 1), most, until_us - now, alive, wanting,
  state.born, state.grants,
}
