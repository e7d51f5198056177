#!lua flags=allow-oom
-- evict shuts seats, and gives back a page of their hands. ARGV: "0" they left or "1" they died, together; seats. Of
-- the dead ones that were not shut before, suspects are charged if more than twice as many had one as had none: at most
-- half of all executors have one, so in an outage that is not so. Answers 1 if there is more, then the seats that cannot
-- be read.
return run(function()
  local how, at, seats, n, with, without = ARGV[1], now(), {}, 0, 0, 0
  local reply, seen = {0}, {}
  if how ~= '0' and how ~= '1' then fail('ARGUMENT', how) end
  queue()
  within(2, 1)
  for i = 2, #ARGV do
    local s = {name = ARGV[i], key = P .. 'h:' .. ARGV[i]}
    local v = call('HGET', HANDS, s.name)
    if seen[s.name] then v = false end
    seen[s.name] = true
    if v then
      s.how, s.role, s.slots = match(v, '^shut:([012]):([ew]):(%d+)$')
      if not s.how then s.role, s.slots = match(v, '^([ew]):(%d+):%d+$') end
      local kind = call('TYPE', s.key).ok
      if not s.role or kind ~= 'hash' and kind ~= 'none' then
        reply[#reply + 1] = s.name
      else
        seats[#seats + 1] = s
        if s.how then -- it has its end
        elseif call('HEXISTS', s.key, 'suspect') == 1 then with = with + 1
        else without = without + 1 end
        if n < ITEMS then
          s.fields = task_fields(s.key)
          n = n + #s.fields
          for _, f in ipairs(s.fields) do load((field(f))) end
        end
      end
    end
  end
  if how == '1' and with > 2 * without then how = '2' end

  for _, s in ipairs(seats) do
    if not s.how then
      s.how = how
      call('HSET', HANDS, s.name, 'shut:' .. how .. ':' .. s.role .. ':' .. s.slots)
      if s.role == 'e' then q.slots = q.slots - s.slots end
    end
  end
  local bytes = 0
  for _, s in ipairs(seats) do
    local handled, sum = -1, 0
    if s.fields and bytes < BYTES then handled, sum = give_back(s.key, s.fields, s.how, at) end
    bytes = bytes + sum
    if handled < #(s.fields or {}) then reply[1] = 1; break end
    call('DEL', s.key); call('HDEL', HANDS, s.name)
  end
  if #seats > 0 then q.evicted = at; save(); wake() end
  return reply
end)
