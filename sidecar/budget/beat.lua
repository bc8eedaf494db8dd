-- A sign of life, and the fleet as it is then. After turn, asked, shares, calm, terms, records,
-- roster, incident, culls, trials, leases, fleet, sizes and grants.
--
-- ARGV[4..7]  instance, incarnation, kind of its errors, claim id of the token of a container that is down, or ""
-- ARGV[8]     presence: "starting", "well", "wants", "down" or "gone"
-- ARGV[9]     1 when no beat of this sidecar has been answered yet, else 0
-- ARGV[10]    holder of the lease of a container that is down, or ""
-- ARGV[11]    what is to be told of the container, if that is news, or ""
--
-- Reply: the fleet as fleet.lua has it

local instance, incarnation, kind, claim_id, presence = unpack(ARGV, 4, 8)

local limits = fleet.hear({
  instance = instance, incarnation = incarnation, kind = kind, claim_id = claim_id, presence = presence,
  is_first = ARGV[9] == '1', lease = ARGV[10],
})
roster.note_wish()
if ARGV[11] ~= '' then
  roster.tells(instance, ARGV[11], fleet.alive + trials.missing)
end
save()
local capacity, weighs = sizes.capacity(fleet.alive + trials.missing), strategy == 'previous'
local used = weighs and grants.usage(capacity, limits.window) or used_of(capacity, limits.window)
return refused or fleet.shown(instance, limits, used, capacity)
