-- What all scripts share. KEYS[1] is the key "q"; all other keys have its prefix, and with it its hash tag.
local P = string.sub(KEYS[1], 1, -2)
local Q, IDS, HANDS, RUN, LATE = KEYS[1], P .. 'ids', P .. 'hands', P .. 'run', P .. 'late'
local DEAD, FULL, WAKE_E, WAKE_W = P .. 'dead', P .. 'full', P .. 'wake:e', P .. 'wake:w'
local FORMAT, ITEMS, BYTES, SUSPECT = 1, 1000, 1048576, 2
local call, pcal, floor, max, min, match = redis.call, redis.pcall, math.floor, math.max, math.min, string.match

-- fail ends the script with an error reply. It is called before the first write only.
local function fail(code, text) error({refusal = code .. ' ' .. text}) end

local function run(main)
  local ok, reply = pcall(main)
  if ok then return reply end
  if type(reply) == 'table' and reply.refusal then return redis.error_reply(reply.refusal) end
  error(reply)
end

-- cost is what an item counts for in the books: its bytes and a little for its place.
local function cost(a, b) return #a + (b and #b or 0) + 32 end

-- within checks that items of a call, ARGV[first], ARGV[first + step] and so on, are at most 1 MiB plus the last one.
local function within(first, step)
  local n, sum, last, argv = 0, 0, 0, ARGV
  for i = first, #argv, step do n, last = n + 1, #argv[i]; sum = sum + last end
  if n > ITEMS then fail('LIMIT', 'more than ' .. ITEMS .. ' items') end
  if sum - last > BYTES then fail('LIMIT', 'more than ' .. BYTES .. ' bytes') end
  return n
end

local QF = {'vt', 'bytes', 'mean', 'seen', 'born', 'slots', 'weights', 'evicted'}
local q = {}

-- queue reads the queue. It also reads every key that is not of one batch, so that one of another type fails here.
local function queue()
  local v = call('HMGET', Q, 'format', 'id', unpack(QF))
  q.format, q.id = v[1], v[2]
  if v[1] and v[1] ~= tostring(FORMAT) then fail('FORMAT', v[1]) end
  for i, f in ipairs(QF) do q[f] = tonumber(v[i + 2] or '0') end
  call('ZCARD', IDS); call('HLEN', HANDS); call('ZCARD', RUN); call('ZCARD', LATE); call('ZCARD', DEAD)
  call('ZCARD', FULL); call('LLEN', WAKE_E); call('LLEN', WAKE_W)
end

-- identify checks the queue's id, and notes it where the queue is new.
local function identify(id)
  if q.id and q.id ~= id then fail('QUEUE', q.id) end
  if not q.id then q.id, q.fresh = id, true end
end

local NUMBERS = {
  'born', 'weight', 'attempts', 'version', 'declared', 'sum', 'tasks', 'taken', 'out', 'done', 'dead', 'bytes', 'big',
  'rbig', 'v', 'mean', 'seen', 'tries', 'falls',
}
local TEXTS = {'life', 'state', 'results', 'holder', 'because'}
local batches = {}

local function runnable(b) return b.state == 'open' and b.w + b.again > 0 end
local function complete(b)
  return (b.state == 'open' or b.state == 'paused') and b.done + b.dead == b.tasks
end

local function read(id)
  local b, v = {id = id, key = P .. 'b:' .. id}, nil
  v = pcal('HMGET', b.key, unpack(NUMBERS))
  if v.err then return {broken = 'b: ' .. v.err} end
  for i, f in ipairs(NUMBERS) do
    b[f] = tonumber(v[i] or '')
    if not b[f] then return {broken = 'no ' .. f} end
  end
  v = call('HMGET', b.key, unpack(TEXTS))
  for i, f in ipairs(TEXTS) do b[f] = v[i] or '' end
  b.w, b.again = pcal('LLEN', b.key .. ':w'), pcal('LLEN', b.key .. ':again')
  b.late, b.r = pcal('ZCARD', b.key .. ':late'), pcal('LLEN', b.key .. ':r')
  for _, f in ipairs({'w', 'again', 'late', 'r'}) do
    if type(b[f]) ~= 'number' then return {broken = f .. ': ' .. b[f].err} end
  end
  if b.w ~= b.tasks - b.taken then return {broken = b.w .. ' tasks wait, not ' .. b.tasks - b.taken} end
  local kept = b.results == 'discard' and 0 or b.done
  if b.r ~= kept then return {broken = b.r .. ' results, not ' .. kept} end
  local open = b.taken - b.done - b.dead
  if b.again + b.late + b.out ~= open then
    return {broken = b.again .. ' returned, ' .. b.late .. ' late and ' .. b.out .. ' in hand, not ' .. open}
  end
  b.run, b.full = runnable(b), complete(b)
  return b
end

-- load is a batch; nil and why not: "gone", or "broken" and what does not fit.
local function load(id)
  local b = batches[id]
  if b == nil then
    b = call('ZSCORE', IDS, id) and read(id) or {gone = true}
    batches[id] = b
  end
  if b.gone then return nil, 'gone', '' end
  if b.broken then return nil, 'broken', b.broken end
  return b
end

-- need is a batch that a script names; the script fails without it.
local function need(id)
  local b, why, text = load(id)
  if b then return b end
  if why == 'gone' then fail('NOBATCH', id) end
  fail('BROKEN', id .. ': ' .. text)
end

local function grow(b, d) b.bytes, q.bytes = b.bytes + d, q.bytes + d end

local function token(key) if call('LLEN', key) == 0 then call('RPUSH', key, '1') end end

-- due is when a complete batch may be claimed: never, if it is not for watchers or has failed too often.
local function due(b, at)
  if b.results ~= 'watcher' or b.tries >= b.attempts then return 'inf' end
  return at
end

-- settle puts a batch where its counts say that it belongs: into run or out of it, into full or out of it.
local function settle(b)
  b.changed = true
  if runnable(b) then
    if not b.run then b.run, b.v, q.weights = true, max(b.v, q.vt), q.weights + b.weight end
    call('ZADD', RUN, b.v, b.id)
  elseif b.run then
    b.run, q.weights = false, q.weights - b.weight
    call('ZREM', RUN, b.id)
  end
  if complete(b) ~= b.full then
    b.full = not b.full
    if b.full then
      local at = due(b, 0)
      call('ZADD', FULL, at, b.id)
      if at == 0 then token(WAKE_W) end
    else
      call('ZREM', FULL, b.id)
    end
  end
end

local function save()
  for _, b in pairs(batches) do
    if b.changed then
      local args = {}
      for _, f in ipairs(NUMBERS) do args[#args + 1] = f; args[#args + 1] = b[f] end
      for _, f in ipairs(TEXTS) do args[#args + 1] = f; args[#args + 1] = b[f] end
      call('HSET', b.key, unpack(args))
    end
  end
  local args = {}
  for _, f in ipairs(QF) do args[#args + 1] = f; args[#args + 1] = q[f] end
  if q.id then call('HSET', Q, 'format', FORMAT, 'id', q.id, unpack(args)) end
end

-- wake leaves a token for an executor if there may be work.
local function wake() if call('ZCARD', RUN) > 0 then token(WAKE_E) end end

-- seat is a seat that said hello: e or w, how many commands it runs at once, its last seq.
local function seat(name)
  local v = call('HGET', HANDS, name)
  local role, slots, seq = match(v or '', '^([ew]):(%d+):(%d+)$')
  if not role then fail('NOSEAT', v and 'shut' or 'unknown') end
  call('HLEN', P .. 'h:' .. name)
  return {name = name, key = P .. 'h:' .. name, role = role, slots = tonumber(slots), seq = tonumber(seq)}
end

local function next_seq(s, seq)
  if tonumber(seq) ~= s.seq + 1 then fail('SEQ', string.format('%.0f', s.seq)) end
end

local function advance(s, seq) call('HSET', HANDS, s.name, s.role .. ':' .. s.slots .. ':' .. seq) end

-- A hand has fields batch:index, and batch:watch for a claim; beside them "suspect", the field of its suspect, which
-- is a task that it has alone, or a claim.
local function field(f)
  local id, index = match(f, '^(.*):(%w+)$')
  return id, index
end
local function entry(e)
  local born, attempt, deaths, charge, payload = match(e, '^(%d+):(%d+):(%d+):(%d+):(.*)$')
  return tonumber(born), tonumber(attempt), tonumber(deaths), tonumber(charge), payload
end

-- put_back returns a task to its batch: suspects to the left, others to the right.
local function put_back(b, index, attempt, deaths, payload)
  local side = deaths >= SUSPECT and 'LPUSH' or 'RPUSH'
  call(side, b.key .. ':again', index .. ':' .. attempt .. ':' .. deaths .. ':' .. payload)
  b.again = b.again + 1
end

-- die makes a task dead. It leaves the batch's bytes, and is held until it is retried or dropped.
local function die(b, index, attempt, deaths, at, reason, payload)
  reason = string.sub(reason, 1, 1024)
  call('RPUSH', P .. 'd:' .. b.id,
    index .. ':' .. attempt .. ':' .. deaths .. ':' .. at .. ':' .. #reason .. ':' .. reason .. payload)
  call('ZADD', DEAD, 'NX', at, b.id)
  b.dead = b.dead + 1
  grow(b, -cost(payload))
  q.bytes = q.bytes + cost(payload, reason)
end

-- give_back empties a hand by the fields, until 1 MiB went back. After "1" and "2" each task has one more death, up to
-- those that make it suspect; after "2" the hand's suspect is charged. It returns how many fields it handled, and their
-- bytes.
local function give_back(key, fields, how, at)
  local suspect, bytes, handled, touched = call('HGET', key, 'suspect'), 0, 0, {}
  for _, f in ipairs(fields) do
    if bytes >= BYTES then break end
    local id, index = field(f)
    local b = load(id)
    local e = call('HGET', key, f)
    bytes, handled = bytes + #e, handled + 1
    if index == 'watch' then
      if b and tonumber(e) == b.born then
        if how == '2' and f == suspect then
          b.falls, b.tries, b.because = b.falls + 1, b.tries + 1, 'its watcher died'
        elseif how ~= '0' and b.falls < SUSPECT then
          b.falls = b.falls + 1
        end
        b.holder, b.changed = '', true
        if b.full then
          local score = due(b, 0)
          call('ZADD', FULL, score, b.id)
          if score == 0 then token(WAKE_W) end
        end
      end
    elseif b then
      local born, attempt, deaths, charge, payload = entry(e)
      if born == b.born then
        b.v, b.out = b.v - charge, b.out - 1
        if how == '2' and f == suspect then
          deaths, attempt = deaths + 1, attempt + 1
        elseif how ~= '0' and deaths < SUSPECT then
          deaths = deaths + 1
        end
        if attempt > b.attempts then
          die(b, index, attempt - 1, deaths, at, 'its executor died ' .. deaths .. ' times', payload)
        else
          put_back(b, index, attempt, deaths, payload)
        end
        touched[#touched + 1] = b
      end
    end
    call('HDEL', key, f)
    if f == suspect then call('HDEL', key, 'suspect') end
  end
  for _, b in ipairs(touched) do settle(b) end
  return handled, bytes
end

local function task_fields(key)
  local all = {}
  for _, f in ipairs(call('HKEYS', key)) do if f ~= 'suspect' then all[#all + 1] = f end end
  table.sort(all)
  return all
end
