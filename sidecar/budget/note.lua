-- Writes entries into the ledger, each of them once, however often it is sent. Stands alone, without turn.
--
-- KEYS[1]  events  stream of entries; other scripts may write there too
-- KEYS[2]  noted   sorted set, word of an entry -> until when it is remembered, in microseconds of Unix time
-- ARGV[1]  how many entries the stream keeps, about; words as well
-- ARGV[2]  milliseconds for which both live on after the last entry
-- ARGV[3]  microseconds for which the word of an entry is remembered
-- ARGV[4]  microseconds for which a word is remembered that several sidecars share
-- ARGV[5..]  for each entry: its word, 1 if several share it or else 0, how many names and values follow; these
--
-- Reply: how many of them had not been written before
--
-- * An entry is written before its word is: should the server refuse the second, it is there twice rather than never.
-- * It is also the first that is written at all: who is full refuses only what a script begins with.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local function us(number)
  return string.format('%.0f', number)
end

local function is_remembered(word)
  local until_us = redis.call('ZSCORE', KEYS[2], word)
  return until_us and tonumber(until_us) > now
end

local written, place = 0, 5
while ARGV[place] do
  local word, is_shared, count = ARGV[place], ARGV[place + 1] == '1', tonumber(ARGV[place + 2])
  if not is_remembered(word) then
    redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(ARGV, place + 3, place + 2 + count))
    redis.call('ZADD', KEYS[2], us(now + (is_shared and ARGV[4] or ARGV[3])), word)
    written = written + 1
  end
  place = place + 3 + count
end

if written > 0 then
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', us(now))
  -- Of too many words those go that are over first.
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - tonumber(ARGV[1]))
  local kept_ms = us(now / 1000 + tonumber(ARGV[2]))
  redis.call('PEXPIREAT', KEYS[1], kept_ms)
  redis.call('PEXPIREAT', KEYS[2], kept_ms)
end
return written
