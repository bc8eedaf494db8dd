-- The fleet member by member, for a person. After turn, terms, records, roster, incident, culls, trials and
-- fleet. Reads only, so a replica answers too, and takes as long as the fleet is large.
--
-- Reply: { fleet as fleet.lua has it, tokens in use by the sliding log of the caller's own window, now,
--          { instance, when it was heard of, ... }, { instance that wants, kind, ... },
--          { missing instance, kind, when it was culled, ... }, { until, author, reason, instance or "", ... },
--          { terms, ... } }

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
    local _, at, _, _, _, kind = unpacked(flat[place + 1], 3, 3)
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

return {
  fleet.shown('', strictest()),
  redis.call('ZCOUNT', KEY.grants, us(now - mine.window), '+inf'),
  now,
  redis.call('ZRANGE', KEY.alive, 0, -1, 'WITHSCORES'),
  redis.call('HGETALL', KEY.kinds),
  missing_ones(),
  holds(),
  redis.call('ZRANGE', KEY.policy, 0, -1),
}
