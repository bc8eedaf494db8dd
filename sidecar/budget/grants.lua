-- How many tokens are in use, and when the next one comes: the twin of sidecar/core/grants.py.
--
-- KEYS[20]  with strategy "fixed" the counter of the seed article ("Culling Containers"): "<fixed key>:<number of the
--           window within the caller's local hour>", e.g. errorWatcher:3. Code that does MULTI, INCR key, EXPIRE key
--           600 by itself counts there too, so one bucket serves them all. The article's key has no hash tag, so with
--           "fixed" the keys lie in different slots of a Redis Cluster, which refuses the script (CROSSSLOT).
-- ARGV[8]   with "fixed", microseconds until the caller's window ends
--
-- A rule takes capacity and window, and gives the tokens in use and the microseconds until one more would fit.

local grants, rules = {}, {}

local function define_grants()
  function grants.newest_from(rank)
    return tonumber(redis.call('ZREVRANGE', KEY.grants, rank, rank, 'WITHSCORES')[2])
  end

  -- The window is closed: a grant exactly one window old still counts.
  function rules.log(capacity, window, since)
    local used = redis.call('ZCOUNT', KEY.grants, since, '+inf')
    if used < capacity then
      return used, 0
    end
    return used, grants.newest_from(capacity - 1) + window + 1 - now
  end

  -- Tokens in use, and the wait; a server whose share is nothing has no token ever.
  function grants.usage(capacity, window, since)
    local used, wait = rules[mine.strategy](math.max(1, capacity), window, since)
    return used, capacity > 0 and wait or window
  end

  -- When this claim was granted, and in which set that stands.
  function grants.grant_of(claim_id)
    local at = redis.call('ZSCORE', KEY.grants, claim_id)
    if at or not may_have('e') then
      return tonumber(at or nil), KEY.grants
    end
    at = redis.call('ZSCORE', KEY.earned, claim_id)
    return tonumber(at or nil), at and KEY.earned or KEY.grants
  end

  -- Writes down a grant, or that one counts from now on, and forgets what no rule will look at again.
  function grants.note(key, claim_id, window)
    local oldest = '(' .. us(now - 2 * window)
    put('ZADD', key, now_text, claim_id)
    write('ZREMRANGEBYSCORE', KEY.grants, '-inf', oldest)
    if may_have('e') then
      write('ZREMRANGEBYSCORE', KEY.earned, '-inf', oldest)
      has_perhaps_none('e')
    end
    set('newest', now)
  end

  -- Until the grants of the window, those that were given back included, are fewer than most.
  function grants.earned_wait(most, window)
    if most == 0 then
      return window
    end
    local keys, live, times = may_have('e') and { KEY.grants, KEY.earned } or { KEY.grants }, 0, {}
    for _, key in ipairs(keys) do
      live = live + redis.call('ZCOUNT', key, us(now - window), '+inf')
    end
    if live < most then
      return 0
    end
    for _, key in ipairs(keys) do
      local flat = redis.call('ZREVRANGE', key, 0, most - 1, 'WITHSCORES')
      for place = 2, #flat, 2 do
        times[#times + 1] = tonumber(flat[place])
      end
    end
    table.sort(times)
    return times[#times - most + 1] + window + 1 - now
  end

  -- -- the other rules ------------------------------------------------------------------------------------------------

  if mine.strategy ~= 'log' then
    function rules.previous(capacity, window)
      local elapsed = now % window
      local start = now - elapsed
      local current, previous = grants.count(KEY.grants, start, now), grants.count(KEY.grants, start - window, start - 1)
      local overlap, room = previous * (window - elapsed), (capacity - current - 1) * window
      local used = current + math.ceil(overlap / window)
      if overlap <= room then
        return used, 0
      end
      return used, grants.overlap_wait(current, previous, room, elapsed, capacity, window)
    end

    -- As in the article a denied claim counts too, but only once no other gate is shut: see grants.counted().
    function rules.fixed(capacity)
      return math.min(tonumber(redis.call('GET', KEYS[20]) or 0), capacity), 0
    end

    function grants.count(key, first, last)
      return redis.call('ZCOUNT', key, us(first), us(last))
    end

    -- Until the overlap with the previous period has shrunk enough: in this period if it can, else in the next.
    function grants.overlap_wait(current, previous, room, elapsed, capacity, window)
      if room >= 0 and previous > 0 then
        return window - elapsed - math.floor(room / previous)
      end
      local room_then = (capacity - 1) * window
      return window - elapsed + window - math.min(window, math.floor(room_then / current))
    end

    -- Every claim puts off the expiry of the counter by a window. The counter goes first: should anything after it fail,
    -- a token is lost and none is invented.
    function grants.counted()
      local number = write('INCR', KEYS[20])
      write('EXPIRE', KEYS[20], us(mine.window / 1000000))
      return number
    end
  end
end

defined_late(grants, define_grants)
