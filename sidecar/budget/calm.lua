-- A beat as almost all are: of a container that is well or starts and neither wanted to be culled nor is missing or on
-- trial, and of which nothing is to be told, in a fleet that goes by one policy, where few want to be culled and nobody
-- is held or silent. Does and answers what beat.lua would, without the rooms which that needs. After turn, asked and
-- shares; arguments and reply as beat.lua has them.

-- Of the terms only these are needed, and to read them all costs more than the rest of this file.
local strategy, most, window, beat, index, servers = string.match(ARGV[1],
  '^([^|]*)|([^|]*)|[^|]*|[^|]*|(%d+)|[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|(%d+)|(%d+)|(%d+)$')
local FEW = 2 -- so many neither put the brake on nor share a cause

local function none_is(key, window)
  return redis.call('ZCOUNT', key, '-inf', '(' .. us(now - window)) == 0
end

local has_leases = state.some and string.find(state.some, 'l', 1, true)

-- Whether those that are missing, on trial, replaced or awaited for a lease, as far as there are any, are others, and
-- stay that for now.
local function concerns_others(instance)
  return string.find(state.some, '^[mrtl]+$') and ARGV[9] == '0'
    and not redis.call('HGET', KEY.culls, instance) and not redis.call('HGET', KEY.trials, instance)
    and not redis.call('ZSCORE', KEY.replaced, instance)
    and none_is(KEY.down, window) and none_is(KEY.replaced, window)
    and not (has_leases and (redis.call('ZSCORE', KEY.leases, instance)
      or redis.call('ZCOUNT', KEY.leases, '-inf', now_text) > 0))
end

local function are_few_others(wanting, instance)
  return wanting == 0 or wanting <= FEW and not redis.call('HGET', KEY.kinds, instance)
end

-- Tokens in use unless the previous period weighs. Mostly the newest grant has left the window, and so have all others.
local function used_of(capacity, window)
  if strategy == 'fixed' then
    return math.min(tonumber(redis.call('GET', KEYS[20]) or 0), math.max(1, capacity))
  end
  return state.newest < now - window and 0 or redis.call('ZCOUNT', KEY.grants, us(now - window), '+inf')
end

local function is_calm(wanting, instance)
  return state.some and state.brake == 'off' and not is_new_policy and not refused
    and (ARGV[8] == 'well' or ARGV[8] == 'starting') and ARGV[11] == ''
    and state.born > 0 and (ARGV[2] == '0' or tonumber(ARGV[2]) == state.born) and tonumber(ARGV[3]) <= state.grants
    and (strategy ~= 'previous' or state.newest < now - 2 * window)
    and are_few_others(wanting, instance) and redis.call('ZCARD', KEY.policy) == 1
    and none_is(KEY.alive, 3 * beat) and (state.some == '' or concerns_others(instance))
end

local wanting = redis.call('HLEN', KEY.kinds)
if is_calm(wanting, ARGV[4]) then
  keep_for(tonumber(window))
  put('ZADD', KEY.alive, now_text, ARGV[4])
  local alive, missing = redis.call('ZCARD', KEY.alive), state.some == '' and 0 or redis.call('ZCARD', KEY.missing)
  if alive + missing > 1 and now - state.several >= MINUTE then
    set('several', now)
  end
  save()
  local capacity = split(at_most(most, alive + missing), tonumber(index), tonumber(servers))
  return refused or {
    alive, wanting, missing, 'off', '', 1, state.losses, state.helped, state.unhelped, state.unclear, {}, {},
    has_leases and redis.call('ZCARD', KEY.leases) or 0, state.tally, used_of(capacity, window), capacity,
    state.born, state.grants,
  }
end
