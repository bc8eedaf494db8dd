-- What every call begins with: the keys, the clock, the numbers kept from call to call, and how to write.
-- Each script is this file and some of the others, one after the other, as scripts.py says.
--
-- KEYS[1..19], all with the hash tag of the service. Times are microseconds of Unix time. Any text may hold any byte.
--   1 grants     sorted set, claim id -> when it was granted; these count
--   2 earned     the same, of grants that were given back
--   3 policy     sorted set, terms as their sidecars write them -> when they were last asked by
--   4 state      hash of numbers; one that is missing is 0: born, grants, newest (grant), losses, lost (when), helped,
--                unhelped, unclear, several (when there were last two), gathering, brake, began, held, canary, kept,
--                frozen, leased (when last), and two texts: some, tally (trials.lua)
--   5 alive      sorted set, instance -> when it was last heard of
--   6 kinds      hash, instance that wants to be culled -> kind of its errors
--   7 causes     sorted set, kind -> how many want because of it
--   8 departed   sorted set, instance -> when it said goodbye, or was struck off
--   9 missing    sorted set, instance -> when it was culled
--  10 down       sorted set, the same instances -> when they were culled, or last heard to be down
--  11 culls      hash, the same instances -> packed cull (culls.lua)
--  12 trials     hash, instance -> packed trial (culls.lua)
--  13 replaced   sorted set, instance -> when a newcomer took its place
--  14 useless    hash, kind -> "culls in a row that did not help|when the last was learned of"
--  15 hold       hash, instance, or "" for the service -> packed hold
--  16 leases     sorted set, instance that has to be well for a lease to end -> when its slot is free at the latest
--  17 holders    hash, the same instances -> packed holder (leases.lua)
--  18 members    hash, instance that is alive or missing -> what its sidecar tells of it (sidecar/core/members.py)
--  19 events     stream, the ledger (note.lua)
-- ARGV[1]  the caller's terms, as terms.lua reads them
-- ARGV[2]  birth of the bucket as the caller knows it, 0 for nothing known
-- ARGV[3]  grants of the bucket as the caller knows it
-- The last  how many entries the ledger keeps, about
--
-- * Time is the server's TIME, read once. Should it have stepped back, it stands still at the newest grant: a skewed
--   clock can delay a token and never adds one.
-- * Lua keeps whole numbers up to 2^53, and tostring() fewer digits: us() writes them.
-- * Writing stops at the first error, which is what a script that had to write then answers. So a server that is full
--   or read-only still tells that a token is ours. The first thing written takes memory, so full is seen at once.
-- * A key lives on for two windows, which is what the rules look at, and a day: so much may the server's clock jump
--   ahead and come back. That is renewed once an hour for all keys at a time, and for a key as it comes into being;
--   a service that has ended leaves nothing behind. A hold lives until its end, and the ledger as note.lua has it.
-- * Most keys are empty most of the time: "some" of the state has the letters of those which may not be.

local KEY = {
  grants = KEYS[1], earned = KEYS[2], policy = KEYS[3], state = KEYS[4], alive = KEYS[5], kinds = KEYS[6],
  causes = KEYS[7], departed = KEYS[8], missing = KEYS[9], down = KEYS[10], culls = KEYS[11], trials = KEYS[12],
  replaced = KEYS[13], useless = KEYS[14], hold = KEYS[15], leases = KEYS[16], holders = KEYS[17],
  members = KEYS[18], events = KEYS[19],
}
local MINUTE, HOUR, DAY = 60000000, 3600000000, 86400000000

local function us(number)
  if number < 1000000 then
    return string.format('%.0f', number)
  end
  local part = number % 1000000 -- in two halves it is written in half the time
  return string.format('%d%06d', (number - part) / 1000000, part)
end

-- -- the state -----------------------------------------------------------------------------------------------------

local state = {
  born = 0, grants = 0, newest = 0, losses = 0, lost = 0, helped = 0, unhelped = 0, unclear = 0,
  several = 0, gathering = 0, began = 0, held = 0, canary = 0, kept = 0, frozen = 0, leased = 0, brake = 'off', some = false, tally = '',
}
local flat = redis.call('HGETALL', KEY.state)
for place = 1, #flat, 2 do
  local name, value = flat[place], flat[place + 1]
  state[name] = (name == 'brake' or name == 'some' or name == 'tally') and value or 0 + value
end
local changes = {}

local function set(name, value)
  if state[name] ~= value then
    state[name] = value
    changes[#changes + 1] = name
    changes[#changes + 1] = type(value) == 'number' and us(value) or value
  end
end

local function add(name, number)
  set(name, state[name] + number)
end

local time = redis.call('TIME')
local told = time[1] * 1000000 + time[2]
local now = math.max(told, state.newest, state.leased)
local now_text = now == told and time[1] .. string.format('%06d', time[2]) or us(now)

-- -- writing -------------------------------------------------------------------------------------------------------

local refused, is_renewal, is_new_policy = nil, false, false

local function write(...)
  if refused then
    return 0
  end
  local reply = redis.pcall(...)
  if type(reply) == 'table' and reply.err then
    refused = reply
    return 0
  end
  return reply
end

local kept_ms

local function ms(time_us)
  return string.format('%.0f', time_us / 1000)
end

-- Add to a key that may not have been there.
local function put(command, key, ...)
  if write(command, key, ...) ~= 0 then
    kept_ms = kept_ms or ms(state.kept)
    write('PEXPIREAT', key, kept_ms)
  end
end

local function keep_for(window)
  local least = now + 2 * window + DAY
  if state.kept < least then
    is_renewal = true
    set('kept', least + HOUR)
    kept_ms = nil
  end
end

local function save()
  if #changes > 0 then
    write('HSET', KEY.state, unpack(changes))
  end
  if is_renewal then
    for place = 1, 18 do
      local until_us = KEYS[place] == KEY.hold and math.max(state.kept, state.frozen) or state.kept
      write('PEXPIREAT', KEYS[place], ms(until_us))
    end
  end
end
