#!lua flags=allow-oom
-- remove unlinks a batch, whatever its state. Its dead tasks stay until they are dropped. ARGV: batch, life ("" for one
-- whose keys are broken). Answers 1 if it was there.
return run(function()
  local id, life = ARGV[1], ARGV[2]
  queue()
  if not call('ZSCORE', IDS, id) then return 0 end
  local key = P .. 'b:' .. id
  local v = pcal('HMGET', key, 'life', 'weight', 'bytes', 'holder')
  if v.err then v = {} end
  if life ~= '' and v[1] and v[1] ~= life then fail('LIFE', v[1]) end

  if call('ZREM', RUN, id) == 1 then q.weights = q.weights - (tonumber(v[2] or '') or 0) end
  if v[4] and v[4] ~= '' then
    local hand = P .. 'h:' .. v[4]
    call('HDEL', hand, id .. ':watch')
    if call('HGET', hand, 'suspect') == id .. ':watch' then call('HDEL', hand, 'suspect') end
  end
  q.bytes = q.bytes - (tonumber(v[3] or '') or 0)
  call('ZREM', FULL, id); call('ZREM', LATE, id); call('ZREM', IDS, id)
  call('UNLINK', key, key .. ':w', key .. ':again', key .. ':r', key .. ':late')
  save(); wake()
  return 1
end)
