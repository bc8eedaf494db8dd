-- Who says a word first may go on: one sidecar of the fleet then sends a message. Stands alone, without turn.
--
-- KEYS[1]  first:<word>  string, the caller who was first
-- ARGV[1]  the caller of this call; one who had no clear answer calls again under the same name
-- ARGV[2]  milliseconds for which nobody else is first
--
-- Reply: 1 if the caller was first, else 0

if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0
