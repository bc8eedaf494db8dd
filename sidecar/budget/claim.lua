-- A claim under the strategies "log" and "previous": the twin of sidecar/core/grants.py, answer for answer.
--
-- KEYS[1]  grants: sorted set, claim id -> time of its grant in microseconds of Unix time
-- ARGV[1]  strategy: "log" or "previous"
-- ARGV[2]  claim id
-- ARGV[3]  capacity: tokens per window
-- ARGV[4]  window in microseconds
--
-- Reply: { granted (1 or 0), word ("granted", "replayed" or "window"), used, capacity, retry_after in microseconds }
--
-- * Time is the server's TIME, read once. Should it have stepped back, it stands still at the newest grant: a skewed
--   clock can delay a token and never adds one.
-- * A claim id that was granted within the window is granted again and costs nothing; this is looked at before any
--   trimming. Its grant counts from then on, for only now the container goes down, and a grant that has left the window
--   makes no more room for its claim than for any other: late replays and fresh grants would add up otherwise.
-- * A denied claim writes nothing.
-- * The grant itself is written first: when anything after it fails, asking again is a replay.
-- * The key outlives the newest grant by the two windows that the rules look at, and by a day: so much may the
--   server's clock jump ahead and come back without the grants being forgotten meanwhile.
-- Microseconds have more digits than tostring() keeps, hence us().

local grants, strategy, claim_id = KEYS[1], ARGV[1], ARGV[2]
local capacity, window = tonumber(ARGV[3]), tonumber(ARGV[4])
local DAY = 86400000000

local function us(number)
  return string.format('%.0f', number)
end

local function newest_from(rank)
  return tonumber(redis.call('ZREVRANGE', grants, rank, rank, 'WITHSCORES')[2] or 0)
end

local function server_time()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function count(first, last)
  return redis.call('ZCOUNT', grants, us(first), us(last))
end

-- The window is closed: a grant exactly one window old still counts.
local function sliding_log(now)
  local used = count(now - window, now)
  if used < capacity then
    return used, 0
  end
  return used, newest_from(capacity - 1) + window + 1 - now
end

-- Until the overlap with the previous period has shrunk enough: in this period if it can, else in the next.
local function wait(current, previous, room, elapsed)
  if room >= 0 and previous > 0 then
    return window - elapsed - math.floor(room / previous)
  end
  local room_then = (capacity - 1) * window
  return window - elapsed + window - math.min(window, math.floor(room_then / current))
end

local function previous_period(now)
  local elapsed = now % window
  local start = now - elapsed
  local current, previous = count(start, now), count(start - window, start - 1)
  local overlap, room = previous * (window - elapsed), (capacity - current - 1) * window
  local used = current + math.ceil(overlap / window)
  if overlap <= room then
    return used, 0
  end
  return used, wait(current, previous, room, elapsed)
end

local function note(call, now)
  call('ZADD', grants, us(now), claim_id)
  call('ZREMRANGEBYSCORE', grants, '-inf', '(' .. us(now - 2 * window))
  call('PEXPIREAT', grants, us((now + 2 * window + DAY) / 1000))
end

local rules = { log = sliding_log, previous = previous_period }

local told = server_time()
local now = math.max(told, newest_from(0))
local used, retry_after = rules[strategy](now)
local granted_at = tonumber(redis.call('ZSCORE', grants, claim_id) or nil)
if granted_at and now - granted_at <= window then
  note(redis.pcall, now) -- a full memory must not hide that the token is ours
  return { 1, 'replayed', used, capacity, 0 }
end
if retry_after > 0 then
  return { 0, 'window', used, capacity, now - told + retry_after }
end
note(redis.call, now)
return { 1, 'granted', used + 1, capacity, 0 }
