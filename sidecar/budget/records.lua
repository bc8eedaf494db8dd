-- How records are packed into text, which of the keys that are mostly empty are not, and the holds.

-- "1700000000000000|3|2|abcde": numbers, then the lengths of texts, then the texts.
local function pack(numbers, texts)
  local parts = {}
  for place, number in ipairs(numbers) do
    parts[place] = us(number)
  end
  for _, text in ipairs(texts) do
    parts[#parts + 1] = #text
  end
  return table.concat(parts, '|') .. '|' .. table.concat(texts)
end

local function unpacked(packed, numbers, texts)
  local values, place = {}, 1
  for index = 1, numbers + texts do
    local bar = string.find(packed, '|', place, true)
    values[index] = tonumber(string.sub(packed, place, bar - 1))
    place = bar + 1
  end
  for index = numbers + 1, numbers + texts do
    local length = values[index]
    values[index] = string.sub(packed, place, place + length - 1)
    place = place + length
  end
  return unpack(values, 1, numbers + texts)
end

-- -- what there may be -----------------------------------------------------------------------------------------------

local LETTERS = {
  e = KEY.earned, m = KEY.missing, t = KEY.trials, r = KEY.replaced, u = KEY.useless, h = KEY.hold, l = KEY.leases,
}

local is_some = {} -- by letter; the letters in the state are for the next call

local function may_have(letter)
  return is_some[letter]
end

local function has(letter)
  if not may_have(letter) then
    is_some[letter] = true
    set('some', state.some .. letter)
  end
end

local function has_perhaps_none(letter)
  if may_have(letter) and redis.call('EXISTS', LETTERS[letter]) == 0 then
    is_some[letter] = nil
    set('some', (string.gsub(state.some, letter, '')))
  end
end

if state.some then
  for letter in string.gmatch(state.some, '.') do
    is_some[letter] = true
  end
else
  set('some', 'emtruhl')
  for letter in pairs(LETTERS) do
    is_some[letter] = true
  end
  for letter in pairs(LETTERS) do
    has_perhaps_none(letter)
  end
end

-- Most calls need few of the functions there are, and to define them all takes as long as some questions to Redis: those
-- that define() adds to the table are defined when the first of them is called.
local function defined_late(functions, define)
  return setmetatable(functions, {
    __index = function(_, name)
      setmetatable(functions, nil)
      define()
      return functions[name]
    end,
  })
end

-- -- holds ---------------------------------------------------------------------------------------------------------

-- { until, author, reason, instance or "" } of the hold on the service, or else on the instance; nil where none is.
local function hold_on(instance)
  if not may_have('h') then
    return nil
  end
  local packed = redis.call('HMGET', KEY.hold, '', instance)
  for place, scope in ipairs({ '', instance }) do
    if packed[place] then
      local until_us, author, reason = unpacked(packed[place], 1, 2)
      if until_us > now then
        return { until_us, author, reason, scope }
      end
    end
  end
end
