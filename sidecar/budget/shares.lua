-- What an amount comes to, and which part of it is this server's: with terms.lua and sizes.lua the twin of
-- sidecar/core/strictest.py.

local function split(total, index, servers)
  return math.floor(total / servers) + (index < total % servers and 1 or 0)
end

-- A count, or a part of the fleet in thousandths.
local function amount_of(share)
  local count = tonumber(share)
  return count or 0 + string.sub(share, 1, -2), not count
end

-- One at least, and never all of several.
local function at_most(share, fleet)
  local amount, is_part = amount_of(share)
  return is_part and math.max(1, math.min(fleet - 1, math.floor(fleet * amount / 1000))) or amount
end
