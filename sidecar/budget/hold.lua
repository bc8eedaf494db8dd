-- Freezes the service, or one instance of it. After turn, terms and records.
--
-- ARGV[4..6]  instance, or "" for the service; author; reason
-- ARGV[7]     microseconds for which it holds
--
-- Reply: when it ends, in microseconds

local instance, author, reason = unpack(ARGV, 4, 6)
local until_us = now + tonumber(ARGV[7])

has('h')
set('frozen', math.max(state.frozen, until_us))
is_renewal = true
keep_for(mine.window)
write('HSET', KEY.hold, instance, pack({ until_us }, { author, reason }))
save()
return refused or until_us
