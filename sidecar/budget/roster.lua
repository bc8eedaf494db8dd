-- Who of the fleet is there, and what the wanting suffer from: the twin of sidecar/core/roster.py.

local roster = { wanting = redis.call('HLEN', KEY.kinds) }

-- What it wants to be culled for, if it does.
function roster.kind_of(instance)
  return roster.wanting > 0 and redis.call('HGET', KEY.kinds, instance)
end

function roster.content(instance, kind)
  roster.wanting = roster.wanting - 1
  write('HDEL', KEY.kinds, instance)
  if tonumber(write('ZINCRBY', KEY.causes, -1, kind)) <= 0 then
    write('ZREM', KEY.causes, kind)
  end
end

function roster.heard(instance, kind)
  put('ZADD', KEY.alive, now_text, instance)
  local former = roster.kind_of(instance)
  if former and former ~= kind then
    roster.content(instance, former)
  end
  if kind and former ~= kind then
    roster.wanting = roster.wanting + 1
    roster.news = { instance, kind }
  end
end

-- Writes down that the caller wants, which is left until it is clear that it goes on to.
function roster.note_wish()
  if roster.news then
    local instance, kind = unpack(roster.news)
    roster.news = nil
    put('HSET', KEY.kinds, instance, kind)
    put('ZINCRBY', KEY.causes, 1, kind)
  end
end

function roster.left(instance)
  write('ZREM', KEY.alive, instance)
  if roster.news and roster.news[1] == instance then
    roster.news = nil
    roster.wanting = roster.wanting - 1
    return
  end
  local kind = roster.kind_of(instance)
  if kind then
    roster.content(instance, kind)
  end
end

-- Strikes off one that may come back.
function roster.departs(instance, window)
  roster.left(instance)
  write('ZREMRANGEBYSCORE', KEY.departed, '-inf', '(' .. us(now - window))
  put('ZADD', KEY.departed, now_text, instance)
  write('HDEL', KEY.members, instance)
end

local function is_member(instance)
  return redis.call('ZSCORE', KEY.alive, instance) or redis.call('ZSCORE', KEY.missing, instance)
end

-- Keeps what is told of a member. There are so many: where more are told of, some have been replaced or given up.
function roster.tells(instance, about, number)
  if not is_member(instance) then
    return
  end
  put('HSET', KEY.members, instance, about)
  if redis.call('HLEN', KEY.members) <= number then
    return
  end
  local flat = redis.call('HGETALL', KEY.members)
  for place = 1, #flat, 2 do
    if not is_member(flat[place]) then
      write('HDEL', KEY.members, flat[place])
    end
  end
end

-- Whether one of this name has been here within the window: it replaces nobody else by coming back.
function roster.is_known(instance, window)
  local departed = redis.call('ZSCORE', KEY.departed, instance)
  return redis.call('ZSCORE', KEY.alive, instance) or departed and now - departed <= window
end

function roster.silent(expiry)
  return redis.call('ZRANGEBYSCORE', KEY.alive, '-inf', '(' .. us(now - expiry))
end

-- The kind that four fifths of the wanting share, and three at least; of two as frequent the later one by name.
function roster.cause()
  if roster.wanting < 3 then
    return ''
  end
  local most = redis.call('ZREVRANGE', KEY.causes, 0, 0, 'WITHSCORES')
  local shared = tonumber(most[2] or 0)
  return shared >= 3 and shared * 1000 >= 800 * roster.wanting and most[1] or ''
end
