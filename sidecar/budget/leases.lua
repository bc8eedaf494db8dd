-- The slots of those that go for their age: the twin of sidecar/core/leases.py.
--
-- A holder is packed as { whether the replacement has arrived (1 or 0), holder word, incarnation }.

local leases = {}

local function define_leases()
  function leases.used()
    return redis.call('ZCOUNT', KEY.leases, '(' .. now_text, '+inf')
  end

  function leases.slot_of(instance)
    local packed = may_have('l') and redis.call('HGET', KEY.holders, instance)
    if packed then
      local arrived, holder, incarnation = unpacked(packed, 1, 2)
      local until_us = tonumber(redis.call('ZSCORE', KEY.leases, instance) or now)
      return { has_arrived = arrived == 1, holder = holder, incarnation = incarnation, until_us = until_us }
    end
  end

  function leases.take(instance, slot)
    has('l')
    put('ZADD', KEY.leases, us(slot.until_us), instance)
    put('HSET', KEY.holders, instance, pack({ slot.has_arrived and 1 or 0 }, { slot.holder, slot.incarnation }))
  end

  function leases.free(instance)
    write('ZREM', KEY.leases, instance)
    write('HDEL', KEY.holders, instance)
    has_perhaps_none('l')
  end

  function leases.expire()
    for _, instance in ipairs(redis.call('ZRANGEBYSCORE', KEY.leases, '-inf', now_text)) do
      leases.free(instance)
    end
  end

  function leases.arrived(place, instance)
    local slot = leases.slot_of(place)
    if slot then
      leases.free(place)
      slot.has_arrived = true
      leases.take(instance, slot)
    end
  end

  function leases.is_well(instance, incarnation)
    local slot = leases.slot_of(instance)
    if slot and (slot.has_arrived or slot.incarnation ~= incarnation) then
      leases.free(instance)
    end
  end

  -- Hears of a lease that was forgotten. The container has one slot, and no longer than it had it already; when it was
  -- granted, and for how long, is forgotten, and a window is how long all else is remembered.
  function leases.down(instance, holder, incarnation, window)
    local former = leases.slot_of(instance)
    leases.take(instance, {
      holder = holder, incarnation = incarnation, until_us = former and former.until_us or now + window,
    })
  end
end

defined_late(leases, define_leases)
