-- What the store holds at one instant, for a request of one instance. It writes nothing.
--
-- Times are microseconds of the server's clock. Texts may hold any byte, and no record is understood here.
-- KEYS[1]   state     hash: revision (time of the last commit, or more), and the texts of the records epoch and state
-- KEYS[2]   culls     hash, instance -> text
-- KEYS[3]   leases    hash, instance -> text
-- KEYS[4]   holds     hash, instance, or "" for the service -> text
-- KEYS[5]   settings  sorted set, text -> when a beat last brought it
-- KEYS[6]   alive     sorted set, instance -> last beat
-- KEYS[7]   members   hash, instance -> "<incarnation>\n<identity, left out by 0.2>\n<cause>\n<0|1 refused>"
-- KEYS[8]   causes    hash, cause -> suspects
-- KEYS[9]   control   hash, "<refused|recovered|ended>|<cause>" -> suspects
-- KEYS[10]  grants    sorted set, claim id -> when a token was granted
-- KEYS[11]  refunded  sorted set, those of them whose token was given back, with the same times
-- KEYS[12]  departed  sorted set, instance -> when it left or was struck off
-- KEYS[13]  errors    sorted set, instance that is alive -> server errors in its window
-- ARGV[1]   instance that asks
-- ARGV[2]   window in microseconds: grants of the last two are told
-- ARGV[3]   expiry in microseconds: a member that was silent for longer is not alive
--
-- Reply: names and values in turn, see the end.

local call, time = redis.call, redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local oldest, latest = now - ARGV[3], now + 1000000 -- a beat after that is of a clock that has stepped back since
local since = now - 2 * ARGV[2]
local culls = call('HGETALL', KEYS[2])
local run_id = string.match(tostring(redis.pcall('INFO', 'server')), '\nrun_id:(%w+)') or ''
local middle = math.floor(call('ZCARD', KEYS[13]) / 2)
local median_errors = tonumber(call('ZRANGE', KEYS[13], middle, middle, 'WITHSCORES')[2]) or -1

local beating = {}
for first = 1, #culls, 2000 do -- Lua hands over no more than some thousand arguments
  local names = {}
  for index = first, math.min(#culls, first + 1998), 2 do names[#names + 1] = culls[index] end
  local times, rows = call('ZMSCORE', KEYS[6], unpack(names)), call('HMGET', KEYS[7], unpack(names))
  for index, name in ipairs(names) do
    local at = tonumber(times[index])
    if at and at >= oldest and at <= latest then
      beating[#beating + 1] = name
      beating[#beating + 1] = rows[index] or ''
    end
  end
end

local records = call('HMGET', KEYS[1], 'revision', 'epoch', 'state')

return {
  'now', now,
  'revision', records[1],
  'epoch', records[2],
  'state', records[3],
  'culls', culls,
  'leases', call('HGETALL', KEYS[3]),
  'holds', call('HGETALL', KEYS[4]),
  'settings', call('ZRANGE', KEYS[5], 0, -1, 'WITHSCORES'), -- and when each was heard
  'alive', call('ZCOUNT', KEYS[6], oldest, latest),
  'beating', beating, -- of those in culls: instance, member row
  'newest', call('ZRANGE', KEYS[6], -1, -1, 'WITHSCORES'), -- the member that beat last, and when
  'causes', call('HGETALL', KEYS[8]),
  'control', call('HGETALL', KEYS[9]),
  'grants', call('ZRANGEBYSCORE', KEYS[10], since, '+inf', 'WITHSCORES'),
  'refunded', call('ZRANGEBYSCORE', KEYS[11], since, '+inf', 'WITHSCORES'),
  'own_row', call('HGET', KEYS[7], ARGV[1]), -- of the instance that asks, as the next two
  'own_beat', call('ZSCORE', KEYS[6], ARGV[1]),
  'departed', call('ZSCORE', KEYS[12], ARGV[1]),
  'run_id', run_id, -- "" where INFO is missing or forbidden
  'median_errors', median_errors, -- -1: no member reported any
}
