-- What the terms in force mean for a fleet of a certain size: with terms.lua the twin of sidecar/core/strictest.py.

local sizes = {}

function sizes.split(total, terms)
  return math.floor(total / terms.servers) + (terms.index < total % terms.servers and 1 or 0)
end

-- A count, or a part of the fleet in thousandths.
function sizes.amount_of(share)
  local count = tonumber(share)
  return count or 0 + string.sub(share, 1, -2), not count
end

function sizes.at_least(share, fleet)
  local amount, is_part = sizes.amount_of(share)
  return is_part and math.ceil(fleet * amount / 1000) or amount
end

-- One at least, and never all of several.
function sizes.at_most(share, fleet)
  local amount, is_part = sizes.amount_of(share)
  return is_part and math.max(1, math.min(fleet - 1, math.floor(fleet * amount / 1000))) or amount
end

-- { capacity, gone, floor, earned } for a fleet of so many, available or not: tokens, containers that may be missing by
-- this server's grants, containers that have to stay, and grants a window at most.
function sizes.of(fleet, is_earning)
  local least = { capacity = math.huge, gone = math.huge, floor = 0, earned = math.huge }
  for _, one in ipairs(in_force) do
    local capacity = sizes.at_most(one.capacity, fleet)
    local floor = math.max(sizes.at_least(one.min_healthy, fleet), tonumber(string.sub(one.flags, 1, 1)))
    least.capacity = math.min(least.capacity, sizes.split(capacity, one))
    least.gone = math.min(least.gone, sizes.split(math.max(0, fleet - floor), one))
    least.floor = math.max(least.floor, floor)
    if is_earning then
      least.earned = math.min(least.earned, sizes.split(one.earn_max > 0 and one.earn_max or 3 * capacity, one))
    end
  end
  return least
end
