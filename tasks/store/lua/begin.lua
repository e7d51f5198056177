#!lua
-- begin puts a batch among the batches, and sets its bytes aside. ARGV: batch, queue id, life, weight, attempts,
-- results, bytes, the queue's max_bytes. A repeat changes nothing.
return run(function()
  local id, life = ARGV[1], ARGV[3]
  local weight, attempts, bytes, most = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7]), tonumber(ARGV[8])
  local known = {watcher = true, submitter = true, discard = true}
  if not (weight >= 1 and weight <= 1000 and attempts >= 1 and bytes >= 0 and bytes < 2 ^ 53)
      or not known[ARGV[6]] and not match(ARGV[6], '^keep:%d') then
    fail('ARGUMENT', table.concat({ARGV[4], ARGV[5], ARGV[6], ARGV[7]}, ' '))
  end
  queue(); identify(ARGV[2])
  if call('ZSCORE', IDS, id) then
    local b = need(id)
    if b.life ~= life then fail('LIFE', b.life) end
    return 0
  end
  if call('EXISTS', P .. 'd:' .. id) == 1 then fail('DEAD', id) end
  if q.bytes > 0 and q.bytes + bytes > most then fail('FULL', string.format('%.0f', q.bytes)) end
  q.born = q.born + 1
  call('ZADD', IDS, q.born, id)
  local b = {id = id, key = P .. 'b:' .. id, life = life, state = 'submitting', results = ARGV[6]}
  b.holder, b.because = '', ''
  for _, f in ipairs(NUMBERS) do b[f] = 0 end
  b.born, b.weight, b.attempts, b.declared, b.changed = q.born, weight, attempts, bytes, true
  grow(b, bytes)
  batches[id] = b
  save()
  return 1
end)
