-- A sign of life, and the fleet as it is then. After turn, asked, calm, terms, records,
-- roster, incident, culls, trials and fleet.
--
-- ARGV[4..7]  instance, incarnation, kind of its errors, claim id of the token of a container that is down, or ""
-- ARGV[8]     presence: "starting", "well", "wants", "down" or "gone"
-- ARGV[9]     1 when no beat of this sidecar has been answered yet, else 0
--
-- Reply: the fleet as fleet.lua has it

local instance, incarnation, kind, claim_id, presence = unpack(ARGV, 4, 8)

local limits = fleet.hear({
  instance = instance, incarnation = incarnation, kind = kind, claim_id = claim_id, presence = presence,
  is_first = ARGV[9] == '1',
})
roster.note_wish()
save()
return refused or fleet.shown(instance, limits)
