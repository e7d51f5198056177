#!lua flags=no-writes
-- count reads the books. ARGV: "queue": time, the queue's fields, sizes, seats; "batches", from, n: for each its
-- fields, or what is broken; "batch", id: the same of one; "results", batch, from: a page of results; "dead", batch,
-- from: a page of dead tasks.
local function page(key, from, most)
  local out, bytes, step = {}, 0, 1
  while #out < ITEMS and bytes < BYTES do
    local some = call('LRANGE', key, from + #out, from + #out + step - 1)
    for _, e in ipairs(some) do
      if bytes < BYTES then out[#out + 1] = e; bytes = bytes + #e end
    end
    if #some < step then break end
    step = min(ITEMS - #out, max(1, floor((BYTES - bytes) / most)))
  end
  return out
end

local function books(name)
  local b, _, why = load(name)
  local row = {name, b and '' or why}
  if b then
    for _, f in ipairs(TEXTS) do row[#row + 1] = b[f] end
    for _, f in ipairs(NUMBERS) do row[#row + 1] = string.format('%.0f', b[f]) end
    for _, f in ipairs({'w', 'again', 'late'}) do row[#row + 1] = tostring(b[f]) end
  end
  return row
end

return run(function()
  queue()
  local what, id, from = ARGV[1], ARGV[2], tonumber(ARGV[3] or 0)
  if what == 'queue' then
    local reply = {string.format('%.0f', now())}
    for _, f in ipairs(QF) do reply[#reply + 1] = string.format('%.0f', q[f]) end
    for _, k in ipairs({IDS, RUN, FULL, LATE, DEAD}) do reply[#reply + 1] = tostring(call('ZCARD', k)) end
    reply[#reply + 1] = call('HGETALL', HANDS)
    return reply
  end
  if what == 'batches' then
    local reply = {}
    for _, name in ipairs(call('ZRANGE', IDS, id, id + from - 1)) do reply[#reply + 1] = books(name) end
    return reply
  end
  if what == 'batch' then
    if not call('ZSCORE', IDS, id) then fail('NOBATCH', id) end
    return books(id)
  end
  if what == 'results' then return page(P .. 'b:' .. id .. ':r', from, need(id).rbig + 64) end
  if what == 'dead' then return page(P .. 'd:' .. id, from, 262144) end
  fail('ARGUMENT', what)
end)
