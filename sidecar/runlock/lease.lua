-- The leases of one lock: who holds which slot, and until when.
--
-- KEYS[1]  hash; the fields below, and slot -> "until ttl holder"
--   clock  time as this lock knows it
--   seen   TIME when it was last looked at
--   run    run id of the server which then looked
--   open   from when on by the lock's clock a free slot is given away
-- ARGV[1]  acquire, extend or release
-- ARGV[2]  holder: a random word
-- ARGV[3]  ttl
-- ARGV[4]  slots
-- Times are microseconds. Returns the slot that the holder now has, of release: had; 0 for none.
--
-- A holder gives up by its own clock 2/5 ttl after it sent its last heartbeat; by the lock's clock a lease lasts a
-- whole ttl. What lies between pays for a step of the server's clock and for the memory of another server:
-- * The lock's clock goes by TIME, but never backwards, and between two looks by no more than half a ttl. So a step to
--   any date, once in a ttl, ends no lease too early. Who looks but now and then takes over at the second look.
-- * Another run id is another memory: a replica that was promoted, a restart. A lease may be missing there, so for half
--   a ttl no free slot is given away; who is remembered goes on. An empty server that is younger than a ttl is new.
-- * While somebody holds, the key does not expire: that goes by the server's clock, which may be stepped.

local key, order, holder, ttl, slots = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local UNUSED_MS = 86400000

local function us(number)
  return string.format('%.0f', number)
end

-- -- what was --------------------------------------------------------------------------------------------------------

local record, leases, longest, shortest, mine = {}, {}, ttl, ttl, 0
local flat = redis.call('HGETALL', key)
for place = 1, #flat, 2 do
  local name, value = flat[place], flat[place + 1]
  local slot = tonumber(name)
  if slot then
    local ends, its_ttl, word = string.match(value, '^(%d+) (%d+) (.*)$')
    leases[slot] = tonumber(ends)
    longest, shortest = math.max(longest, tonumber(its_ttl)), math.min(shortest, tonumber(its_ttl))
    mine = word == holder and slot or mine
  else
    record[name] = value
  end
end

local time = redis.call('TIME')
local told = time[1] * 1000000 + time[2]
local about = redis.call('INFO', 'server')
local run = string.match(about, 'run_id:(%w+)') or ''
-- In whole seconds, and of two rounded times: it may be less.
local age = (tonumber(string.match(about, 'uptime_in_seconds:(%d+)') or '0') - 1) * 1000000

local clock = tonumber(record.clock or '0')
local open = tonumber(record.open or '0')
if record.clock then
  clock = clock + math.max(0, math.min(told - tonumber(record.seen), shortest / 2))
end
if record.clock and record.run ~= run or not record.clock and age < longest then
  open = math.max(open, clock + longest / 2)
end

-- -- what is asked ---------------------------------------------------------------------------------------------------

local function free_slot()
  for slot = 1, slots do
    if not leases[slot] or leases[slot] <= clock then
      return slot
    end
  end
  return 0
end

local slot = mine
if order == 'acquire' and mine == 0 and clock >= open then
  slot = free_slot()
end

redis.call('HSET', key, 'clock', us(clock), 'seen', us(told), 'run', run, 'open', us(open))
if order == 'release' and slot > 0 then
  redis.call('HDEL', key, slot)
  leases[slot] = nil
elseif slot > 0 then
  redis.call('HSET', key, slot, us(clock + ttl) .. ' ' .. us(ttl) .. ' ' .. holder)
  leases[slot] = clock + ttl
end
if next(leases) then
  redis.call('PERSIST', key)
else
  redis.call('PEXPIRE', key, UNUSED_MS)
end
return slot
