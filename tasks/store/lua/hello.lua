#!lua flags=allow-oom
-- hello lets a seat in. ARGV: seat, queue id, e or w, commands at once. Answers its last seq.
return run(function()
  local name, id, role, slots = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
  queue(); identify(id)
  local v = call('HGET', HANDS, name)
  if v then return string.format('%.0f', seat(name).seq) end
  if role == 'e' then q.slots = q.slots + slots end
  call('HSET', HANDS, name, role .. ':' .. slots .. ':0')
  save()
  return '0'
end)
