-- The terms of all sidecars of the service, and the strictest of each: the twin of sidecar/core/terms.py.
--
-- Terms are a text: strategy|capacity|min_healthy|never_last and lost_is_empty as 0 or 1 each|window|spacing|brake|
-- probation|useless_after|earn_max|beat|index|servers. Times in microseconds; the brake, and an amount that ends in
-- "p", in thousandths of the fleet.

local FIELDS = '^' .. string.rep('([^|]*)|', 12) .. '([^|]*)$'

local function terms_of(text)
  local strategy, capacity, min_healthy, flags, window, spacing, brake, probation, useless_after, earn_max, beat,
    index, servers = string.match(text, FIELDS)
  return {
    text = text, strategy = strategy, capacity = capacity, min_healthy = min_healthy, flags = flags,
    window = tonumber(window), spacing = tonumber(spacing), brake = tonumber(brake), probation = tonumber(probation),
    useless_after = tonumber(useless_after), earn_max = tonumber(earn_max), beat = tonumber(beat),
    index = tonumber(index), servers = tonumber(servers),
  }
end

local mine = terms_of(ARGV[1])
local in_force, is_new_policy = { mine }, false

-- Reads the terms of the others; those that nobody has asked by for so long that all who did are struck off are
-- forgotten on the way, if they may be. How many terms are kept.
local function read_policies(is_forgetting)
  local flat = redis.call('ZRANGE', KEY.policy, 0, -1, 'WITHSCORES')
  local kept = #flat / 2
  for place = 1, #flat, 2 do
    local one = flat[place] ~= mine.text and terms_of(flat[place])
    if one and is_forgetting and now - tonumber(flat[place + 1]) > 3 * one.beat then
      write('ZREM', KEY.policy, one.text)
      kept = kept - 1
    elseif one then
      in_force[#in_force + 1] = one
    end
  end
  return kept
end

-- 0 is off, and counts only when all others are off too.
local function least_on(one, other)
  if one == 0 or other == 0 then
    return math.max(one, other)
  end
  return math.min(one, other)
end

-- What does not depend on the size of the fleet.
local function strictest()
  local limits = {
    window = 0, spacing = 0, brake = 0, probation = 0, useless_after = 0, expiry = 0,
    is_earning = true, lost_is_empty = false,
  }
  for _, one in ipairs(in_force) do
    limits.window = math.max(limits.window, one.window)
    limits.spacing = math.max(limits.spacing, one.spacing * one.servers)
    limits.brake = least_on(limits.brake, one.brake)
    limits.probation = math.max(limits.probation, one.probation)
    limits.useless_after = least_on(limits.useless_after, one.useless_after)
    limits.expiry = math.max(limits.expiry, 3 * one.beat)
    limits.is_earning = limits.is_earning and one.earn_max >= 0 and one.strategy == 'log'
    limits.lost_is_empty = limits.lost_is_empty or string.sub(one.flags, 2) == '1'
  end
  return limits
end
