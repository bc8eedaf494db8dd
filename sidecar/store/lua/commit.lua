-- Writes what was decided, all of it or nothing, if nobody has committed anything since the view was read.
--
-- Whatever is asked for, it grants no token over the bound: it counts the grants of the window itself.
-- Times are microseconds of the server's clock. Texts may hold any byte, and no record is understood here.
-- KEYS[1]   state     hash: revision (time of the last commit, or more), and the texts of the records epoch and state
-- KEYS[2]   culls     hash, instance -> text
-- KEYS[3]   leases    hash, instance -> text
-- KEYS[4]   holds     hash, instance, or "" for the service -> text
-- KEYS[5]   grants    sorted set, claim id -> when a token was granted
-- KEYS[6]   refunded  sorted set, those of them whose token was given back, with the same times
-- KEYS[7]   events    stream, the ledger
-- KEYS[8]   noted     sorted set, word of an entry -> until when it is remembered
-- KEYS[9]   alive     sorted set, instance -> last beat
-- KEYS[10]  abouts    hash, instance -> the description by its sidecar; only of those that are in alive or in culls
-- ARGV[1]   revision of the view, or "" for none: then only entries are written, and nothing is decided
-- ARGV[2]   claim id to grant a token to, or ""; one that was granted within the window is granted anew
-- ARGV[3]   window in microseconds, 0 for none
-- ARGV[4]   tokens of the window, not counting those given back; 0 is no limit
-- ARGV[5]   grants of the window in all; 0 is no limit
-- ARGV[6]   how many writes follow, ARGV[7] how many refunds
-- ARGV[8]   how many entries the ledger keeps, about; as many words are remembered
-- ARGV[9]   milliseconds for which the ledger lives on after its last entry
-- ARGV[10]  microseconds for which the word of an entry is remembered, ARGV[11] one that several sidecars share
-- ARGV[12..] for each write: key 1 to 4, name, text, "" to remove it; for each refund: claim id;
--           for each entry: its word, 1 if several share it or else 0, how many names and values follow, these
--
-- Reply: { 1 done, 0 another revision, -1 no token left; now; entries that are new }

local call, time = redis.call, redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local STATE, GRANTS, REFUNDED, EVENTS, NOTED = KEYS[1], KEYS[5], KEYS[6], KEYS[7], KEYS[8]
local revision, grant, window = ARGV[1], ARGV[2], tonumber(ARGV[3])
local writes_end = 11 + 3 * ARGV[6]
local refunds_end = writes_end + ARGV[7]

-- -- look first ---------------------------------------------------------------------------------------------------

if revision ~= '' and (call('HGET', STATE, 'revision') or '0') ~= revision then
  return { 0, now, 0 }
end
local has_hold = false
for index = 12, writes_end, 3 do
  has_hold = has_hold or tonumber(ARGV[index]) == 4
end

local is_renewed, is_refunded = false, false
if grant ~= '' then
  local since = now - window
  local made, back = call('ZCOUNT', GRANTS, since, '+inf'), call('ZCOUNT', REFUNDED, since, '+inf')
  local at = tonumber(call('ZSCORE', GRANTS, grant))
  is_renewed, is_refunded = at and at >= since, call('ZSCORE', REFUNDED, grant)
  if is_renewed then
    made = made - 1
    back = back - (is_refunded and 1 or 0)
  end
  local capacity, most = tonumber(ARGV[4]), tonumber(ARGV[5])
  if capacity > 0 and made - back >= capacity or most > 0 and made >= most then
    return { -1, now, 0 }
  end
end

-- -- then write: first what takes memory, since a server that is full refuses only the beginning of a script ----------

-- A hold, and its release, is written to a full server, too: that refuses nothing after a first write, and this first
-- write, of a field that is never there, takes no memory. Nothing is granted then.
if has_hold and grant == '' then call('HDEL', STATE, '') end

local noted, index = 0, refunds_end + 1
while ARGV[index] do
  local word, is_shared, count = ARGV[index], ARGV[index + 1] == '1', tonumber(ARGV[index + 2])
  local until_us = tonumber(call('ZSCORE', NOTED, word) or 0)
  if until_us <= now then
    call('XADD', EVENTS, 'MAXLEN', '~', ARGV[8], '*', unpack(ARGV, index + 3, index + 2 + count))
    call('ZADD', NOTED, now + (is_shared and ARGV[11] or ARGV[10]), word)
    noted = noted + 1
  end
  index = index + 3 + count
end
if noted > 0 then
  call('ZREMRANGEBYSCORE', NOTED, '-inf', now)
  call('ZREMRANGEBYRANK', NOTED, 0, -1 - ARGV[8]) -- of too many words those go that are over first
  call('PEXPIRE', EVENTS, ARGV[9])
  call('PEXPIRE', NOTED, ARGV[9])
end
if revision == '' then
  return { 1, now, noted }
end

-- The time is part of the revision: a process that follows with an older copy must not count up to the same one again,
-- or it would take what was decided on a view of the former process.
local next_revision = math.max(tonumber(call('HGET', STATE, 'revision') or 0) + 1, now)
call('HSET', STATE, 'revision', string.format('%.0f', next_revision))
for index = 12, writes_end, 3 do
  local key, name, text = KEYS[tonumber(ARGV[index])], ARGV[index + 1], ARGV[index + 2]
  if text == '' then call('HDEL', key, name) else call('HSET', key, name, text) end
  if text == '' and key == KEYS[2] and not call('ZSCORE', KEYS[9], name) then call('HDEL', KEYS[10], name) end
end
for _, key in ipairs({ GRANTS, REFUNDED }) do
  for _, id in ipairs(call('ZRANGEBYSCORE', key, now + 1, '+inf')) do
    call('ZADD', key, now, id) -- a clock that has stepped back must not block the budget
  end
  if window > 0 then call('ZREMRANGEBYSCORE', key, '-inf', now - 2 * window - 1) end
end
if grant ~= '' then
  call('ZADD', GRANTS, now, grant)
  if is_refunded and is_renewed then
    call('ZADD', REFUNDED, now, grant)
  elseif is_refunded then
    call('ZREM', REFUNDED, grant)
  end
end
for index = writes_end + 1, refunds_end do
  local at = call('ZSCORE', GRANTS, ARGV[index])
  if at then call('ZADD', REFUNDED, at, ARGV[index]) end
end
return { 1, now, noted }
