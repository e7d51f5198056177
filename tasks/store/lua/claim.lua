#!lua flags=allow-oom
-- claim gives a complete batch to a watcher. ARGV: seat, seq. Answers ms to the next batch that may be claimed (-1:
-- none, 0: now), then the batch, its life, done, dead, and the number of this try; or only the first.
return run(function()
  queue()
  local s, at, got = seat(ARGV[1]), now(), nil
  next_seq(s, ARGV[2])
  local from, broken = 0, {}
  repeat
    local ids = call('ZRANGEBYSCORE', FULL, '-inf', at, 'LIMIT', from, 16)
    for _, id in ipairs(ids) do
      if not got then
        got = load(id)
        if not got then broken[#broken + 1] = id end
      end
    end
    from = from + 16
  until got or #ids < 16

  advance(s, ARGV[2])
  for _, id in ipairs(broken) do call('ZADD', FULL, at + 10000, id) end
  if got then
    got.holder, got.changed = s.name, true
    call('HSET', s.key, got.id .. ':watch', got.born)
    if got.falls >= SUSPECT then call('HSET', s.key, 'suspect', got.id .. ':watch') end
    call('ZREM', FULL, got.id)
    save()
  end
  local first, wait = call('ZRANGEBYSCORE', FULL, '-inf', '(inf', 'WITHSCORES', 'LIMIT', 0, 1), -1
  if first[2] then wait = max(0, first[2] - at) end
  if wait == 0 then token(WAKE_W) else call('DEL', WAKE_W) end
  if not got then return {wait} end
  return {wait, got.id, got.life, got.done, got.dead, got.tries + 1}
end)
