-- A claim under the strategy "fixed": the counter of the seed article ("Culling Containers"), shared with code that
-- does MULTI, INCR key, EXPIRE key 600 by itself. Both count in the same key, so one bucket serves them all.
--
-- KEYS[1]  counter: "<fixed key>:<number of the window within the caller's local hour>", e.g. errorWatcher:3
-- KEYS[2]  grants: sorted set, claim id -> time of its grant in microseconds of Unix time (as in claim.lua)
-- ARGV[1]  claim id
-- ARGV[2]  capacity: tokens per window
-- ARGV[3]  window in microseconds (whole seconds)
-- ARGV[4]  microseconds until the caller's window ends
--
-- Reply: { granted (1 or 0), word ("granted", "replayed" or "window"), used, capacity, retry_after in microseconds }
--
-- * As in the article a denied claim counts too, and every claim puts off the expiry of the counter by a window.
-- * A claim id that was granted less than a window ago is granted again and counts nothing, whatever window it was
--   asked in first: a claim granted just before a boundary whose reply was lost is asked again after it, under another
--   counter. The memory of that is therefore the service's own set and not a key beside the counter.
-- * Hence the two keys lie in different slots of a Redis Cluster, which refuses the script (CROSSSLOT): no tokens
--   there. The article's key has no hash tag that could bring them together.
-- * The counter goes first: should anything after it fail, a token is lost and none is invented.
-- * The key of the grants outlives the newest one by two windows and a day, as in claim.lua.

local counter, grants, claim_id = KEYS[1], KEYS[2], ARGV[1]
local capacity, window, retry_after = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local DAY = 86400000000

local function us(number)
  return string.format('%.0f', number)
end

local function server_now()
  local time = redis.call('TIME')
  local newest = redis.call('ZREVRANGE', grants, 0, 0, 'WITHSCORES')[2]
  return math.max(time[1] * 1000000 + time[2], tonumber(newest or 0))
end

local now = server_now()
local granted_at = tonumber(redis.call('ZSCORE', grants, claim_id) or nil)
if granted_at and now - granted_at <= window then
  local count = tonumber(redis.call('GET', counter) or 0)
  return { 1, 'replayed', math.min(count, capacity), capacity, 0 }
end

local count = redis.call('INCR', counter)
redis.call('EXPIRE', counter, us(window / 1000000))
if count > capacity then
  return { 0, 'window', capacity, capacity, retry_after }
end
redis.call('ZADD', grants, us(now), claim_id)
redis.call('ZREMRANGEBYSCORE', grants, '-inf', '(' .. us(now - 2 * window))
redis.call('PEXPIREAT', grants, us((now + 2 * window + DAY) / 1000))
return { 1, 'granted', count, capacity, 0 }
