-- Gives a lease back: its container is missing no longer. After turn, records, culls, trials and leases.
--
-- ARGV[4..5]  instance, holder word; another one's lease stays as it is
--
-- Reply: 1 if it was this holder's, else 0

local instance, holder = ARGV[4], ARGV[5]

local slot, cull = leases.slot_of(instance), trials.cull_of(instance)
local is_holder = slot and slot.holder == holder
local is_missing = cull and cull.is_lease and cull.claim_id == holder
if is_missing then
  trials.found(instance)
end
if is_holder then
  leases.free(instance)
end
save()
return refused or (is_missing or is_holder) and 1 or 0
