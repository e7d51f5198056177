#!lua flags=allow-oom
-- turn is the whole work of an executor. ARGV: seat, seq, idle commands, room in ns, back-off in ms, max_bytes, then
-- for each result: batch:index, "attempt:outcome:ns" with outcome o (done), r (try again) or d (do not), result or
-- reason. Answers ms to the next due task (-1: none), what was refused {number, why}, granted {batch, index, attempt,
-- payloads}, 0, 1 or 2 as bytes are below max_bytes, below twice, above; or 3: nothing until the hand is empty.
--
-- It goes in this order: check the results, which is all that may be refused; put back late tasks that are due; count
-- the results; take tasks, from the batches that were served least; tell whether another executor could take some.
-- In all of it b is a batch, s the seat, f the field of a task in the seat's hand (batch:index), e what stands there
-- (born:attempt:deaths:charge:payload; common.lua), and at is now. What waits to be tried again is
-- index:attempt:deaths:payload.
local ARGS = 7
local s, at, refused, granted, hand
local find, sub = string.find, string.sub

-- results reads what the results name. What it returns can be finished: each with the parts of what the hand has; or
-- without a batch, if that is gone, which only empties the hand.
local function results()
  local fields, found, seen = {}, {}, {}
  for i = ARGS, #ARGV, 3 do fields[#fields + 1] = ARGV[i] end
  if #fields == 0 then return found end
  local entries, heads, last, b, why = call('HMGET', s.key, unpack(fields)), {}, nil, nil, nil
  for n, f in ipairs(fields) do
    local attempt, outcome, ns = match(ARGV[ARGS + 3 * n - 2], '^(%d+):([ord]):(%d+)$')
    local colon, e = find(f, ':', 1, true), entries[n]
    if not attempt or not colon then fail('ARGUMENT', f) end
    local id = sub(f, 1, colon - 1)
    if id ~= last then last = id; b, why = load(id) end
    if not b then
      refused[#refused + 1] = {n - 1, why}
      if why == 'gone' and e then found[#found + 1] = {field = f} end
    elseif not e or seen[f] then
      refused[#refused + 1] = {n - 1, 'held'}
    else
      -- Most tasks of a hand have the same numbers before their payload.
      local head, start = match(e, '^(%d+:%d+:%d+:%d+:)()')
      local held = heads[head]
      if not held then
        local born, held_attempt, _, charge = entry(head)
        held = {born = born, attempt = held_attempt, charge = charge}
        heads[head] = held
      end
      if held.born ~= b.born then
        refused[#refused + 1] = {n - 1, 'gone'}
        found[#found + 1] = {field = f}
        seen[f] = true
      elseif held.attempt ~= tonumber(attempt) then
        refused[#refused + 1] = {n - 1, 'held'}
      else
        found[#found + 1] = {
          field = f, batch = b, number = n, index = sub(f, colon + 1), outcome = outcome, ns = ns,
          held = held, entry = e, payload = start,
        }
        seen[f] = true
      end
    end
  end
  return found
end

-- come_due returns late tasks whose time has come: a page of some batches.
local function come_due()
  for _, id in ipairs(call('ZRANGEBYSCORE', LATE, '-inf', at, 'LIMIT', 0, 16)) do
    local b, why = load(id)
    if not b then
      if why == 'gone' then call('ZREM', LATE, id) else call('ZADD', LATE, at + 10000, id) end
    else
      local key, n = b.key .. ':late', max(1, min(100, floor(BYTES / (b.big + 64))))
      local members = call('ZRANGEBYSCORE', key, '-inf', at, 'LIMIT', 0, n)
      for _, m in ipairs(members) do call('RPUSH', b.key .. ':again', m) end
      if #members > 0 then call('ZREMRANGEBYRANK', key, 0, #members - 1) end
      b.again, b.late = b.again + #members, b.late - #members
      local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')
      if first[2] then call('ZADD', LATE, first[2], id) else call('ZREM', LATE, id) end
      settle(b)
    end
  end
end

local function learn(x, n, sum)
  local c = min(x.seen, 100)
  x.mean = floor((x.mean * c + sum) / (c + n))
  x.seen = x.seen + n
end

-- fail_task makes a failed task late or dead.
local function fail_task(b, index, outcome, attempt, payload, reason, backoff)
  if outcome == 'd' or attempt >= b.attempts then
    die(b, index, attempt, 0, at, reason, payload)
    return
  end
  local again = at + backoff * min(2 ^ (attempt - 1), 100)
  call('ZADD', b.key .. ':late', again, index .. ':' .. (attempt + 1) .. ':0:' .. payload)
  call('ZADD', LATE, 'LT', again, b.id)
  b.late = b.late + 1
end

local function finish(found, backoff)
  local order, gone = {}, {}
  local suspect = call('HGET', s.key, 'suspect')
  for _, r in ipairs(found) do
    local b = r.batch
    gone[#gone + 1] = r.field
    if r.field == suspect then gone[#gone + 1] = 'suspect' end
    if b then
      local ns, data = tonumber(r.ns), ARGV[ARGS + 3 * r.number - 1]
      if not b.count then b.total, b.count, b.ok, b.change = 0, 0, {}, 0; order[#order + 1] = b end
      b.total, b.count, b.out = b.total + ns, b.count + 1, b.out - 1
      b.v = b.v + max(1, floor(ns / b.weight)) - r.held.charge -- the time taken, for what was charged as an estimate
      if r.outcome == 'o' then
        local freed = #r.entry - r.payload + 1
        if b.results == 'discard' then
          freed = freed + 32 -- and its place
        else
          b.ok[#b.ok + 1] = r.index .. ':' .. r.held.attempt .. ':' .. r.ns .. ':' .. data
          b.change = b.change + #data
          if #data > b.rbig then b.rbig = #data end
        end
        b.done, b.change = b.done + 1, b.change - freed
      else
        fail_task(b, r.index, r.outcome, r.held.attempt, sub(r.entry, r.payload), data, backoff)
      end
    end
  end
  if #gone > 0 then call('HDEL', s.key, unpack(gone)) end
  for _, b in ipairs(order) do
    if #b.ok > 0 then call('RPUSH', b.key .. ':r', unpack(b.ok)) end
    grow(b, b.change)
    learn(b, b.count, b.total)
    learn(q, b.count, b.total)
    settle(b)
  end
end

-- hold puts a task into the hand. head is what stands before its payload.
local function hold(b, index, head, payload)
  local n = #hand.put
  hand.put[n + 1], hand.put[n + 2] = b.id .. ':' .. index, head .. payload
  hand.bytes, hand.left = hand.bytes + #payload, hand.left - 1
end

local function take_one(b, charge, e)
  local index, attempt, deaths, payload = match(e, '^(%d+):(%d+):(%d+):(.*)$')
  hold(b, index, b.born .. ':' .. attempt .. ':' .. deaths .. ':' .. charge .. ':', payload)
  granted[#granted + 1] = {b.id, tonumber(index), tonumber(attempt), {payload}}
  b.again = b.again - 1
  return index
end

local function deaths_of(e) return tonumber(match(e, '^%d+:%d+:(%d+):')) end

-- trial reports whether one more executor may have a suspect: half of them at most do, so more of an outage have none.
-- It also returns the first executor that has other tasks. Keys of other seats may be damaged.
local function trial()
  local executors, trying, first = 0, 0, nil
  local seats = call('HGETALL', HANDS)
  for i = 1, #seats, 2 do
    if sub(seats[i + 1], 1, 2) == 'e:' then
      local name, key = seats[i], P .. 'h:' .. seats[i]
      executors = executors + 1
      if pcal('HEXISTS', key, 'suspect') == 1 then
        trying = trying + 1
      elseif (tonumber(pcal('HLEN', key)) or 0) > 0 and (not first or name < first) then
        first = name
      end
    end
  end
  return 2 * trying < executors, first
end

-- meets reports whether the next task of a batch is a suspect that this hand takes: only an empty one does. It sets
-- hand.runs if this seat has to take nothing more, until it is empty: it is the first of those that could.
local function meets(b)
  if b.again == 0 or deaths_of(call('LINDEX', b.key .. ':again', 0)) < SUSPECT then return false end
  if not hand.passed then hand.may, hand.first = trial() end
  hand.passed, hand.runs = true, hand.may and hand.first == s.name
  return hand.may and hand.held + #hand.put == 0
end

-- take moves at most k tasks of a batch into the hand: its suspect alone, or returned ones and waiting ones.
local function take(b, k, charge, suspect)
  local n, key = 0, b.key .. ':again'
  if suspect then
    hand.suspect = b.id .. ':' .. take_one(b, charge, call('LPOP', key))
    hand.put[#hand.put + 1], hand.put[#hand.put + 2] = 'suspect', hand.suspect
    return 1
  end
  while n < k and b.again > 0 and hand.bytes < BYTES do
    local last = call('LINDEX', key, -1)
    if deaths_of(last) >= SUSPECT then break end
    call('RPOP', key)
    take_one(b, charge, last)
    n = n + 1
  end
  while n < k and b.w > 0 and hand.bytes < BYTES do
    local chunk = min(k - n, b.w, max(1, floor((BYTES - hand.bytes) / max(b.big, 1))))
    local payloads = call('LPOP', b.key .. ':w', chunk)
    local head, first = b.born .. ':1:0:' .. charge .. ':', b.taken - 1
    for i = 1, chunk do hold(b, first + i, head, payloads[i]) end
    granted[#granted + 1] = {b.id, b.taken, 1, payloads}
    b.taken, b.w, n = b.taken + chunk, b.w - chunk, n + chunk
  end
  return n
end

local function estimate(b)
  local ns = b.seen > 0 and b.mean or (q.seen > 0 and q.mean or 1000000)
  return min(max(ns, 1), 9e13)
end

-- free is how many more tasks of a batch may be out: without limit once its mean is known. Until then a seat takes only
-- what it begins at once, or one if it wants more work: otherwise busy seats would never begin with a new batch.
local function free(b)
  if b.seen > 0 then return ITEMS end
  return max(0, math.ceil(q.slots * b.weight / q.weights) - b.out)
end

-- candidates are the batches to take from, in order: above max_bytes only the oldest that has tasks, so that it gets
-- done; above twice that, none.
local function candidates(level)
  if level == 2 then return {} end
  if level == 0 then return call('ZRANGE', RUN, 0, 31) end
  local from = 0
  repeat
    local ids = call('ZRANGE', IDS, from, from + 99)
    for _, id in ipairs(ids) do if call('ZSCORE', RUN, id) then return {id} end end
    from = from + 100
  until #ids < 100
  return {}
end

local function level(most)
  if q.bytes > 2 * most then return 2 end
  return q.bytes > most and 1 or 0
end

-- take_all fills the hand. Of a batch it takes what fits into room, but no more than half of this seat's share of what
-- is left, and no less than starts idle commands; free caps it.
local function take_all(idle, room, most)
  for _, id in ipairs(candidates(level(most))) do
    local b = load(id)
    if b then
      local est, left, can = estimate(b), b.w + b.again, free(b)
      if b.seen == 0 then can = min(can, max(idle, room > 0 and 1 or 0)) end
      local k = min(floor(room / est), math.ceil(left * s.slots / (2 * max(q.slots, 1))))
      k = min(max(k, idle), left, hand.left)
      if k <= 0 or hand.bytes >= BYTES then return end
      local capped = k > can
      if capped then k = can end
      if k > 0 then
        local charge, suspect = max(1, floor(est / b.weight)), meets(b)
        if hand.runs then return end
        q.vt = max(q.vt, b.v)
        local n = take(b, k, charge, suspect)
        b.v, b.out, idle, room = b.v + n * charge, b.out + n, idle - n, room - n * est
        settle(b)
        -- A batch that has more to take keeps its turn. Only suspects left is nothing to take.
        if suspect or n == k and not capped and b.w + b.again > 0 then return end
      end
    end
  end
end

-- more reports whether another seat could take something. Else seats would be woken for suspects again and again.
local function more(most)
  local suspects = false
  for _, id in ipairs(candidates(level(most))) do
    local b = load(id)
    if b and free(b) > 0 then
      if b.w > 0 or deaths_of(call('LINDEX', b.key .. ':again', -1)) < SUSPECT then return true end
      suspects = true
    end
  end
  return suspects and (trial())
end

return run(function()
  local idle, room, backoff, most = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
  queue()
  within(ARGS + 2, 3)
  s, at, refused, granted = seat(ARGV[1]), now(), {}, {}
  next_seq(s, ARGV[2])
  local found = results()

  advance(s, ARGV[2])
  come_due()
  finish(found, backoff)
  local held = call('HLEN', s.key)
  hand = {put = {}, bytes = 0, held = held, left = ITEMS - held, suspect = call('HGET', s.key, 'suspect')}
  if not hand.suspect then take_all(idle, room, most) end
  local waits = held > 0 and #granted == 0 and (hand.passed or hand.suspect)
  if #hand.put > 0 then call('HSET', s.key, unpack(hand.put)) end
  if more(most) then token(WAKE_E) else call('DEL', WAKE_E) end
  save()
  local first = call('ZRANGE', LATE, 0, 0, 'WITHSCORES')
  return {first[2] and max(0, first[2] - at) or -1, refused, granted, waits and 3 or level(most)}
end)
