-- A beat as almost all are: of a container that is well or starts and neither wanted to be culled nor is missing or on
-- trial, in a fleet that goes by one policy, where few want to be culled and nobody is held or silent. Does and answers
-- what beat.lua would, without the rooms which that needs. After turn and asked; arguments and reply as beat.lua
-- has them.

-- Of the terms only these two are needed, and to read them all costs more than the rest of this file.
local window, beat = string.match(ARGV[1], '^[^|]*|[^|]*|[^|]*|[^|]*|(%d+)|[^|]*|[^|]*|[^|]*|[^|]*|[^|]*|(%d+)|')
local FEW = 2 -- so many neither put the brake on nor share a cause

local function none_is(key, window)
  return redis.call('ZCOUNT', key, '-inf', '(' .. us(now - window)) == 0
end

-- Whether those that are missing, on trial or replaced, as far as there are any, are others, and stay that for now.
local function concerns_others(instance)
  return string.find(state.some, '^[mrt]+$') and ARGV[9] == '0'
    and not redis.call('HGET', KEY.culls, instance) and not redis.call('HGET', KEY.trials, instance)
    and not redis.call('ZSCORE', KEY.replaced, instance)
    and none_is(KEY.down, window) and none_is(KEY.replaced, window)
end

local function are_few_others(wanting, instance)
  return wanting == 0 or wanting <= FEW and not redis.call('HGET', KEY.kinds, instance)
end

local function is_calm(wanting, instance)
  return state.some and state.brake == 'off' and not is_new_policy and not refused
    and (ARGV[8] == 'well' or ARGV[8] == 'starting')
    and state.born > 0 and (ARGV[2] == '0' or tonumber(ARGV[2]) == state.born) and tonumber(ARGV[3]) <= state.grants
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
  return refused or {
    alive, wanting, missing, 'off', '', 1, state.losses, state.helped, state.unhelped, state.unclear, {}, {},
    state.born, state.grants,
  }
end
