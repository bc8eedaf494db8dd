-- A server that runs out of memory may be set to evict keys. One key that is gone is a loss of memory as all of them
-- are, and is noticed by what the state says that there has to be.

local evicted = {}

-- The newest grant is never trimmed, and one that was given back keeps its time.
function evicted.is_grant(window)
  if state.newest <= state.lost or state.newest < now - window then
    return false
  end
  local newest = 0
  for _, key in ipairs({ KEY.grants, KEY.earned }) do
    newest = math.max(newest, tonumber(redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')[2] or 0))
  end
  return newest < state.newest
end

-- Keys that hold the same instances: unless all of them do, none is worth anything, and the down tell of themselves.
function evicted.are(letter, counts, ...)
  if not may_have(letter) then
    return false
  end
  for _, count in ipairs(counts) do
    if count == 0 or count ~= counts[1] then
      write('DEL', ...)
      has_perhaps_none(letter)
      return true
    end
  end
  return false
end

function evicted.is_missing()
  local counts = may_have('m') and { trials.missing, redis.call('ZCARD', KEY.down), redis.call('HLEN', KEY.culls) }
  local is_gone = evicted.are('m', counts, KEY.missing, KEY.down, KEY.culls)
  trials.missing = is_gone and 0 or trials.missing
  return is_gone
end

function evicted.is_lease()
  local counts = may_have('l') and { redis.call('ZCARD', KEY.leases), redis.call('HLEN', KEY.holders) }
  return evicted.are('l', counts, KEY.leases, KEY.holders)
end

function evicted.is_hold()
  if not may_have('h') or redis.call('EXISTS', KEY.hold) == 1 then
    return false
  end
  has_perhaps_none('h')
  return state.frozen > now
end

function evicted.notice(limits)
  local is_grant, is_missing = evicted.is_grant(limits.window), evicted.is_missing()
  local is_lease, is_hold = evicted.is_lease(), evicted.is_hold()
  if is_grant or is_missing or is_lease or is_hold then
    set('lost', now)
    add('losses', 1)
  end
end
