-- What the terms in force mean for a fleet of a certain size: with terms.lua and shares.lua the twin of
-- sidecar/core/strictest.py.

local sizes = {}

-- Tokens for a fleet of so many, available or not.
function sizes.capacity(fleet)
  local least = math.huge
  for _, one in ipairs(in_force) do
    least = math.min(least, split(at_most(one.capacity, fleet), one.index, one.servers))
  end
  return least
end

-- { capacity, gone, floor, earned }: tokens, containers that may be missing by this server's grants, containers that
-- have to stay, and grants a window at most.
function sizes.of(fleet, is_earning)
  local least = { capacity = sizes.capacity(fleet), gone = math.huge, floor = 0, earned = math.huge }
  for _, one in ipairs(in_force) do
    local floor = math.max(sizes.at_least(one.min_healthy, fleet), tonumber(string.sub(one.flags, 1, 1)))
    least.gone = math.min(least.gone, split(math.max(0, fleet - floor), one.index, one.servers))
    least.floor = math.max(least.floor, floor)
    if is_earning then
      local most = one.earn_max > 0 and one.earn_max or 3 * at_most(one.capacity, fleet)
      least.earned = math.min(least.earned, split(most, one.index, one.servers))
    end
  end
  return least
end

function sizes.at_least(share, fleet)
  local amount, is_part = amount_of(share)
  return is_part and math.ceil(fleet * amount / 1000) or amount
end
