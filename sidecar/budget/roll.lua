-- The fleet member by member, for a person. After turn, terms, records, roster, incident, culls, trials, leases,
-- fleet, shares, sizes and grants. Reads only, so a replica answers too, and takes as long as the fleet is large.
--
-- Reply: { fleet as fleet.lua has it, tokens in use by the sliding log of the caller's own window, now,
--          { instance, when it was heard of, ... }, { instance that wants, kind, ... },
--          { missing instance, kind, when it was culled, ... }, { until, author, reason, instance or "", ... },
--          { terms, ... }, { when a token in use was granted, ... } ascending, at most a hundred,
--          { member, what its sidecar tells of it, ... },
--          { who departed within the window and was not replaced, when, ... } newest first, at most a hundred }

fleet.policies = read_policies(false)
fleet.alive = redis.call('ZCARD', KEY.alive)

local function append(list, ...)
  for _, value in ipairs({ ... }) do
    list[#list + 1] = value
  end
end

local function missing_ones()
  local flat, ones = redis.call('HGETALL', KEY.culls), {}
  for place = 1, #flat, 2 do
    local _, at, _, _, _, _, kind = unpacked(flat[place + 1], 4, 3)
    append(ones, flat[place], kind, at)
  end
  return ones
end

local function holds()
  local flat, ones = redis.call('HGETALL', KEY.hold), {}
  for place = 1, #flat, 2 do
    local until_us, author, reason = unpacked(flat[place + 1], 1, 2)
    if until_us > now then
      append(ones, until_us, author, reason, flat[place])
    end
  end
  return ones
end

-- The hundred oldest of the newest ones, which are those in use.
local function times_of(used)
  local times = {}
  if used > 0 then
    local flat = redis.call('ZREVRANGE', KEY.grants, math.max(0, used - 100), used - 1, 'WITHSCORES')
    for place = #flat, 2, -2 do
      append(times, flat[place])
    end
  end
  return times
end

-- Of those who departed some are back, or were replaced.
local function departed(alive, missing, window)
  local is_there, ones = {}, {}
  for place = 1, #alive, 2 do
    is_there[alive[place]] = true
  end
  for place = 1, #missing, 3 do
    is_there[missing[place]] = true
  end
  for _, instance in ipairs(redis.call('ZRANGE', KEY.replaced, 0, -1)) do
    is_there[instance] = true
  end
  local flat = redis.call('ZREVRANGE', KEY.departed, 0, -1, 'WITHSCORES')
  for place = 1, #flat, 2 do
    if now - flat[place + 1] > window or #ones == 200 then
      break
    end
    if not is_there[flat[place]] then
      append(ones, flat[place], flat[place + 1])
    end
  end
  return ones
end

local used = redis.call('ZCOUNT', KEY.grants, us(now - mine.window), '+inf')

local limits = strictest()
local capacity = sizes.capacity(fleet.alive + trials.missing)
local by_rule = grants.usage(capacity, limits.window, us(now - limits.window))
local alive, missing = redis.call('ZRANGE', KEY.alive, 0, -1, 'WITHSCORES'), missing_ones()

return {
  fleet.shown('', limits, by_rule, capacity),
  used,
  now,
  alive,
  redis.call('HGETALL', KEY.kinds),
  missing,
  holds(),
  redis.call('ZRANGE', KEY.policy, 0, -1),
  times_of(used),
  redis.call('HGETALL', KEY.members),
  departed(alive, missing, limits.window),
}
