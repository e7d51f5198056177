#!lua flags=allow-oom
-- retry moves a page of a batch's dead tasks. ARGV: batch, at most, before (ms), the batch to move them to, its life,
-- at. Into the same batch: they run again, with all attempts. Into another one that is submitting: they are appended at
-- the offset. A batch that failed with its watchers may be claimed again. Answers how many were moved.
return run(function()
  local id, most, before = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
  local to, life, at = ARGV[4], ARGV[5], tonumber(ARGV[6])
  queue()
  local b = need(to)
  if b.life ~= life then fail('LIFE', b.life) end
  if most > ITEMS then fail('LIMIT', 'more than ' .. ITEMS .. ' items') end
  if id == to then
    if b.holder ~= '' then fail('CLAIMED', b.holder) end
    if b.state == 'submitting' or b.state == 'cancelled' then fail('STATE', b.state) end
  else
    if b.state ~= 'submitting' then fail('STATE', b.state) end
    if at < b.tasks then return 0 end
    if at ~= b.tasks then fail('OFFSET', tostring(b.tasks)) end
  end
  local page = first_dead(id, most, before)

  forget_dead(id, page)
  for _, d in ipairs(page) do
    b.big = max(b.big, #d.payload)
    if id == to then
      grow(b, cost(d.payload))
      b.dead = b.dead - 1
      put_back(b, d.index, 1, 0, d.payload)
    else
      call('RPUSH', b.key .. ':w', d.payload)
      b.tasks, b.sum, b.w = b.tasks + 1, b.sum + cost(d.payload), b.w + 1
    end
  end
  if id == to and b.tries > 0 then
    b.tries, b.falls, b.because = 0, 0, ''
    if b.full and complete(b) then call('ZADD', FULL, due(b, 0), id); token(WAKE_W) end
  end
  settle(b); save(); wake()
  return #page
end)
