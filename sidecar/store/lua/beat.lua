-- Takes in a sign of life of one sidecar and answers with a summary of the fleet. It waits for no revision.
--
-- Times are microseconds of the server's clock. Texts may hold any byte, and no record is understood here.
-- KEYS[1..12]  as those of read.lua: state, culls, leases, holds, settings, alive, members, causes, control, grants,
--              refunded, departed; "kept" of the state is when the expiry of all keys was last renewed
-- KEYS[13]  errors  sorted set, instance that is alive -> server errors in its window
-- KEYS[14]  ratios  sorted set, instance that told one -> failed requests per million
-- KEYS[15]  abouts  hash, instance that is alive, or down and in culls -> the description by its sidecar
-- ARGV[1]   instance, ARGV[2] presence: "starting", "well", "suspect", "down" or "gone"
-- ARGV[3]   member row: "<incarnation>\n<identity, left out by 0.2>\n<cause>\n<0|1 refused>" with neither cause nor 1
--           unless it is suspect; the first two are one text here
-- ARGV[4]   errors, ARGV[5] ratio or "", ARGV[6] text of the settings, ARGV[7] its new description or ""
-- ARGV[8]   window in microseconds, ARGV[9] expiry: a member that is silent for longer is struck off
-- ARGV[10]  how many are struck off at most, ARGV[11] how many causes are counted; any others as "other"
-- ARGV[12]  milliseconds that all keys live on
--
-- Reply: names and values in turn, see the end.

local call, time = redis.call, redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local STATE, CULLS, _, HOLDS, SETTINGS, ALIVE, MEMBERS, CAUSES, CONTROL, GRANTS, REFUNDED, DEPARTED, ERRORS, RATIOS, DESCRIPTIONS
  = unpack(KEYS)
local instance, presence, row, errors, ratio, settings, description = unpack(ARGV)
local since, oldest, most_causes = now - ARGV[8], now - ARGV[9], tonumber(ARGV[11])
local latest, DAY = now + 1000000, 86400000000 -- a beat after latest is of a clock that has stepped back since
local ROW = '^(.*)\n(.*)\n([01])$'

local function count(word, cause)
  local is_own = call('HEXISTS', CONTROL, 'refused|' .. cause) == 1 or call('HLEN', CONTROL) < most_causes
  call('HINCRBY', CONTROL, word .. '|' .. (is_own and cause or 'other'), 1)
end

local function uncount(former_row, word)
  local _, cause, was_refused = string.match(former_row, ROW)
  if cause and cause ~= '' then
    if call('HINCRBY', CAUSES, cause, -1) < 1 then call('HDEL', CAUSES, cause) end
    if was_refused == '1' then count(word, cause) end
  end
end

local function change(former)
  local member_key, cause, refused = string.match(row, ROW) -- incarnation and identity
  local former_key, former_cause, was_refused = string.match(former, ROW)
  local is_suspect, causes = cause ~= '', call('HLEN', CAUSES)
  if causes >= most_causes and is_suspect and call('HEXISTS', CAUSES, cause) == 0 then cause = 'other' end
  local goes_on = is_suspect and member_key == former_key and cause == former_cause
  if goes_on and (refused == was_refused or was_refused == '1') then return end -- refused once is refused while it is a suspect
  -- When nobody is suspect, counts of old causes make room.
  if is_suspect and causes == 0 and call('HLEN', CONTROL) >= most_causes then call('DEL', CONTROL) end
  if not goes_on then
    uncount(former, presence == 'well' and member_key == former_key and 'recovered' or 'ended')
    if is_suspect then call('HINCRBY', CAUSES, cause, 1) end
  end
  if refused == '1' then count('refused', cause) end
  call('HSET', MEMBERS, instance, member_key .. '\n' .. cause .. '\n' .. refused)
end

local function leave(names, is_departure, keeps_description)
  for index, former_row in ipairs(call('HMGET', MEMBERS, unpack(names))) do
    uncount(former_row or '', 'ended')
    if is_departure then call('ZADD', DEPARTED, now, names[index]) end
  end
  for _, key in ipairs({ ALIVE, ERRORS, RATIOS }) do call('ZREM', key, unpack(names)) end
  call('HDEL', MEMBERS, unpack(names))
  if not keeps_description then call('HDEL', DESCRIPTIONS, unpack(names)) end
  call('ZREMRANGEBYSCORE', DEPARTED, '-inf', since - ARGV[8] - 1)
  call('ZREMRANGEBYRANK', DEPARTED, 0, -10001)
end

local former = call('HGET', MEMBERS, instance) or ''
local keeps_description = presence ~= 'gone' and (presence ~= 'down' or call('HEXISTS', CULLS, instance) == 1)
if presence == 'down' or presence == 'gone' then
  leave({ instance }, presence == 'gone', keeps_description)
else
  call('ZADD', ALIVE, now, instance)
  call('ZADD', ERRORS, errors, instance)
  if ratio ~= '' then call('ZADD', RATIOS, ratio, instance) end
  if row ~= former then change(former) end
end
if keeps_description and description ~= '' then call('HSET', DESCRIPTIONS, instance, description) end

local alive = call('ZCARD', ALIVE)
local silent, struck = alive - call('ZCOUNT', ALIVE, oldest, latest), {}
if silent > 0 then
  struck = call('ZRANGEBYSCORE', ALIVE, '-inf', oldest - 1, 'LIMIT', 0, ARGV[10])
  if not struck[1] then struck = call('ZRANGEBYSCORE', ALIVE, latest + 1, '+inf', 'LIMIT', 0, ARGV[10]) end
  leave(struck, true)
end
local ratios = call('ZCARD', RATIOS)
if ratio == '' and ratios > 0 then ratios = ratios - call('ZREM', RATIOS, instance) end

call('ZADD', SETTINGS, now, settings)
local in_force = call('ZCARD', SETTINGS)
if in_force > 1 then
  call('ZREMRANGEBYSCORE', SETTINGS, '-inf', since - 1)
  call('ZREMRANGEBYSCORE', SETTINGS, latest + 1, '+inf')
  in_force = call('ZCOUNT', SETTINGS, oldest, '+inf')
end

local used = call('ZCOUNT', GRANTS, since, '+inf')
if used > 0 then used = used - call('ZCOUNT', REFUNDED, since, '+inf') end

local draining, culls = 0, call('HGETALL', CULLS)
for index = 1, #culls, 2 do
  local text = call('HGET', DESCRIPTIONS, culls[index])
  if text and string.sub(text, 1, 9) == 'draining|' then draining = draining + 1 end -- the state comes first
end

local records = call('HMGET', STATE, 'epoch', 'state', 'kept')
if math.abs(now - (tonumber(records[3]) or 0)) > DAY then
  call('HSET', STATE, 'kept', now)
  for _, key in ipairs(KEYS) do call('PEXPIRE', key, ARGV[12]) end
end

local run_id = string.match(tostring(redis.pcall('INFO', 'server')), '\nrun_id:(%w+)') or ''
local middle = math.floor((alive - #struck) / 2)
local median_errors = tonumber(call('ZRANGE', ERRORS, middle, middle, 'WITHSCORES')[2]) or -1
middle = math.floor(ratios / 2)
local median_ratio = ratios > 0 and tonumber(call('ZRANGE', RATIOS, middle, middle, 'WITHSCORES')[2]) or -1

return {
  'now', now,
  'epoch', records[1],
  'state', records[2],
  'alive', alive, -- members, the silent included
  'silent', silent,
  'struck', struck, -- those of them that were struck off
  'former', former, -- the row of the instance before
  'causes', call('HGETALL', CAUSES),
  'settings', in_force, -- how many different ones
  'median_errors', median_errors, -- -1: no member reported any
  'median_ratio', median_ratio,
  'holds', call('HMGET', HOLDS, '', instance), -- of the service, of the instance
  'used', used, -- tokens
  'run_id', run_id, -- "" where INFO is missing or forbidden
  'draining', draining, -- culled containers that drain
}
