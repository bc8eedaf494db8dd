-- The leases of one lock: the holder of each slot, and the end of its lease.
--
-- KEYS[1]  hash with the fields below, and slot -> "until ttl holder"
--   clock  the time of this lock
--   seen   TIME at the last call
--   run    run id of the server at the last call
--   open   time of this lock from which free slots are given away
-- ARGV[1]  acquire, extend or release
-- ARGV[2]  holder: a random word
-- ARGV[3]  ttl
-- ARGV[4]  slots
-- Times are microseconds. Returns the slot that the holder now has (release: had), 0 for none.
--
-- A holder gives up 2/5 ttl after sending its last heartbeat, by its own clock. By the clock of the lock a lease lasts a
-- whole ttl. The difference covers a step of the server's clock, and another server with another memory:
-- * The clock of the lock follows TIME, but never backwards, and by at most half a ttl between two calls. So one step to
--   any date per ttl ends no lease too early. A process that calls seldom takes over at its second call.
-- * Another run id means another memory: a promoted replica, or a restart. A lease may be missing there, so for half a
--   ttl no free slot is given away; known holders go on. An empty server that is younger than a ttl counts as new.
-- * While a slot is held, the key does not expire: expiry follows the server's clock, which may be stepped.

local key, order, holder, ttl, slots = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local UNUSED_MS = 86400000

local function us(number)
  return string.format('%.0f', number)
end

-- -- the leases so far --------------------------------------------------------------------------------------------------------

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
local server_us = time[1] * 1000000 + time[2]
local info = redis.call('INFO', 'server')
local run = string.match(info, 'run_id:(%w+)') or ''
-- In whole seconds, from two rounded times: one second may be missing.
local age = (tonumber(string.match(info, 'uptime_in_seconds:(%d+)') or '0') - 1) * 1000000

local clock = tonumber(record.clock or '0')
local open = tonumber(record.open or '0')
if record.clock then
  clock = clock + math.max(0, math.min(server_us - tonumber(record.seen), shortest / 2))
end
if record.clock and record.run ~= run or not record.clock and age < longest then
  open = math.max(open, clock + longest / 2)
end

-- -- the order ---------------------------------------------------------------------------------------------------

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

redis.call('HSET', key, 'clock', us(clock), 'seen', us(server_us), 'run', run, 'open', us(open))
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
