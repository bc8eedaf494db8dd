-- What most calls ask of every cull; trials.lua has the rest.
--
-- A cull is packed as { own (1 or 0), when, occupied until, lease (1 or 0), claim id, or the holder of the lease,
-- incarnation, kind }, a trial as { own, when its container was culled, when it was first seen well, claim id,
-- incarnation, kind }.

local trials = { missing = may_have('m') and redis.call('ZCARD', KEY.missing) or 0 }
local culls, sheet = {}, {}

if may_have('u') then
  local flat = redis.call('HGETALL', KEY.useless)
  for place = 1, #flat, 2 do
    local count, at = string.match(flat[place + 1], '^(%d+)|(%d+)$')
    sheet[flat[place]] = { count = tonumber(count), at = tonumber(at) }
  end
end

function trials.cull_of(instance)
  if culls[instance] == nil then
    local packed = trials.missing > 0 and redis.call('HGET', KEY.culls, instance)
    culls[instance] = false
    if packed then
      local own, at, occupied, lease, claim_id, incarnation, kind = unpacked(packed, 4, 3)
      culls[instance] = {
        own = own, at = at, occupied = occupied, is_lease = lease == 1, claim_id = claim_id,
        incarnation = incarnation, kind = kind,
      }
    end
  end
  return culls[instance]
end

function trials.write_cull(instance, cull)
  local numbers = { cull.own, cull.at, cull.occupied, cull.is_lease and 1 or 0 }
  local packed = pack(numbers, { cull.claim_id, cull.incarnation, cull.kind })
  put('HSET', KEY.culls, instance, packed)
end

function trials.culled(instance, cull)
  local at, is_first = us(cull.at), trials.missing == 0
  trials.missing = trials.missing + (trials.cull_of(instance) and 0 or 1)
  culls[instance] = cull
  has('m')
  local note = is_first and put or write
  note('ZADD', KEY.missing, at, instance)
  put('ZADD', KEY.down, at, instance)
  trials.write_cull(instance, cull)
end

function trials.is_still_missing(instance, incarnation, occupied)
  local cull = trials.cull_of(instance)
  if not cull or cull.incarnation ~= incarnation then
    return false
  end
  trials.occupy(instance, cull, occupied)
  return true
end

-- Gives up on who was not replaced, nor heard to be down, within a window.
function trials.expire(since)
  local oldest = '(' .. since
  if trials.missing > 0 then
    local overdue = redis.call('ZRANGEBYSCORE', KEY.down, '-inf', oldest)
    for _, instance in ipairs(overdue) do
      local cull = trials.cull_of(instance)
      trials.found(instance)
      if cull and not cull.is_lease then
        trials.count('unclear', cull.kind)
        trials.tell('unclear', instance, cull, 'not_replaced')
      end
    end
  end
  if may_have('r') and write('ZREMRANGEBYSCORE', KEY.replaced, '-inf', oldest) > 0 then
    has_perhaps_none('r')
  end
end

function trials.is_useless(kind, after)
  local seen = after > 0 and sheet[kind]
  return seen and seen.count >= after and now - seen.at <= HOUR
end
