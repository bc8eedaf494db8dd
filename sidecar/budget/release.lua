-- Ends a hold, and with that of the service also what was learned of culls that do not help. After
-- turn and records.
--
-- ARGV[4]  instance, or "" for the service
--
-- Reply: 1 if there was such a hold, else 0

local instance = ARGV[4]

if instance == '' then
  if may_have('u') then
    write('DEL', KEY.useless)
    has_perhaps_none('u')
  end
  if state.brake == 'closed' then
    set('brake', 'on')
  end
end
local released = may_have('h') and write('HDEL', KEY.hold, instance) or 0
has_perhaps_none('h')
save()
return refused or released
