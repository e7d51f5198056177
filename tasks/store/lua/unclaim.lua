#!lua flags=allow-oom
-- unclaim gives a claimed batch back. ARGV: seat, seq, batch, "1" to charge a try or "0", back-off in ms, reason.
-- Answers 1 if it was held.
return run(function()
  local id = ARGV[3]
  queue()
  local s, at, b = seat(ARGV[1]), now(), load(ARGV[3])
  next_seq(s, ARGV[2])
  local e = call('HGET', s.key, id .. ':watch')

  advance(s, ARGV[2])
  call('HDEL', s.key, id .. ':watch')
  if call('HGET', s.key, 'suspect') == id .. ':watch' then call('HDEL', s.key, 'suspect') end
  if not b or not e or tonumber(e) ~= b.born then return 0 end
  local score = 0
  if ARGV[4] == '1' then
    b.tries, b.falls, b.because = b.tries + 1, 0, string.sub(ARGV[6], 1, 1024)
    score = at + tonumber(ARGV[5]) * min(2 ^ (b.tries - 1), 100)
  end
  b.holder, b.changed = '', true
  if b.full then
    call('ZADD', FULL, due(b, score), id)
    token(WAKE_W)
  end
  save()
  return 1
end)
