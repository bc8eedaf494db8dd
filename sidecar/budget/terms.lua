-- The terms of all sidecars of the service as sidecar/core/terms.py writes them, and the strictest of each: with
-- sizes.lua the twin of sidecar/core/strictest.py.
--
-- Terms are a text: strategy|capacity|min_healthy|never_last and lost_is_empty as 0 or 1 each|window|spacing|brake|
-- probation|useless_after|earn_max|beat|index|servers. Times in microseconds; the brake, and an amount that ends in
-- "p", in thousandths of the fleet.

local FIELDS =
  '^([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)|([^|]*)$'

local function terms_of(text)
  local strategy, capacity, min_healthy, flags, window, spacing, brake, probation, useless_after, earn_max, beat,
    index, servers = string.match(text, FIELDS)
  return {
    text = text, strategy = strategy, capacity = capacity, min_healthy = min_healthy, flags = flags,
    window = 0 + window, spacing = 0 + spacing, brake = 0 + brake, probation = 0 + probation,
    useless_after = 0 + useless_after, earn_max = 0 + earn_max, beat = 0 + beat,
    index = 0 + index, servers = 0 + servers,
  }
end

local mine = terms_of(ARGV[1])
local in_force = { mine }

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
local function limits_of(one)
  return {
    window = one.window, spacing = one.spacing * one.servers, brake = one.brake, probation = one.probation,
    useless_after = one.useless_after, expiry = 3 * one.beat, is_earning = one.earn_max >= 0 and one.strategy == 'log',
    lost_is_empty = string.sub(one.flags, 2) == '1',
  }
end

local function strictest()
  local limits = limits_of(mine)
  for place = 2, #in_force do
    local other = limits_of(in_force[place])
    limits.window = math.max(limits.window, other.window)
    limits.spacing = math.max(limits.spacing, other.spacing)
    limits.brake = least_on(limits.brake, other.brake)
    limits.probation = math.max(limits.probation, other.probation)
    limits.useless_after = least_on(limits.useless_after, other.useless_after)
    limits.expiry = math.max(limits.expiry, other.expiry)
    limits.is_earning = limits.is_earning and other.is_earning
    limits.lost_is_empty = limits.lost_is_empty or other.lost_is_empty
  end
  return limits
end
