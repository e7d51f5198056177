#!lua flags=allow-oom
-- evict shuts a seat, and gives back a page of its hand. ARGV: seat, "1" to charge deaths or "0". The first page
-- decides about the charge. Answers 1 if there is more.
return run(function()
  local name, charge = ARGV[1], ARGV[2]
  queue()
  local v, key = call('HGET', HANDS, name), P .. 'h:' .. name
  if not v then return 0 end
  local shut, role, slots = match(v, '^shut:([01]):([ew]):(%d+)$')
  if not shut then role, slots = match(v, '^([ew]):(%d+):%d+$') end
  if not role then fail('BROKEN', 'seat ' .. name .. ': ' .. v) end
  local fields, at = task_fields(key), now()
  local mode = 'free'
  if (shut or charge) == '1' then mode = call('HGET', key, 'suspect') and 'suspect' or 'all' end
  for _, f in ipairs(fields) do load((field(f))) end

  if not shut then
    call('HSET', HANDS, name, 'shut:' .. charge .. ':' .. role .. ':' .. slots)
    if role == 'e' then q.slots = q.slots - slots end
  end
  local more = give_back(key, fields, mode, at) < #fields
  if not more then call('DEL', key); call('HDEL', HANDS, name) end
  q.evicted = at
  save(); wake()
  return more and 1 or 0
end)
