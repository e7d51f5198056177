#!lua flags=allow-oom
-- open makes a batch runnable once all its tasks are there. ARGV: batch, life, count. A repeat changes nothing.
return run(function()
  local id, life, count = ARGV[1], ARGV[2], tonumber(ARGV[3])
  queue()
  local b = need(id)
  if b.life ~= life then fail('LIFE', b.life) end
  if b.tasks ~= count then fail('OFFSET', tostring(b.tasks)) end
  if b.state == 'cancelled' then fail('STATE', b.state) end
  if b.state ~= 'submitting' then return 0 end
  b.state = 'open'
  grow(b, b.sum - b.declared)
  settle(b); save(); wake()
  return 1
end)
