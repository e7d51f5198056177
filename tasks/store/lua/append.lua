#!lua
-- append adds tasks at an offset. ARGV: batch, life, at, tasks. A repeat changes nothing. Answers the length.
return run(function()
  local id, life, at = ARGV[1], ARGV[2], tonumber(ARGV[3])
  queue()
  local n, b = within(4, 1), need(id)
  if b.life ~= life then fail('LIFE', b.life) end
  if at + n <= b.tasks and (at < b.tasks or n == 0) then return b.tasks end
  if at ~= b.tasks then fail('OFFSET', tostring(b.tasks)) end
  if b.state ~= 'submitting' then fail('STATE', b.state) end
  local sum = 0
  for i = 4, #ARGV do sum, b.big = sum + cost(ARGV[i]), max(b.big, #ARGV[i]) end
  call('RPUSH', b.key .. ':w', unpack(ARGV, 4))
  b.tasks, b.sum, b.changed = b.tasks + n, b.sum + sum, true
  save()
  return b.tasks
end)
