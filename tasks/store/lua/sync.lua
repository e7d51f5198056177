#!lua flags=allow-oom
-- sync tells a seat what of "keep" is in its hand; a page of the rest goes back, and nobody is charged. ARGV: seat,
-- seq, then pairs of a field and its attempt (0 for a claim). Answers 1 if there is more to go back, then the kept
-- fields.
return run(function()
  local seq = tonumber(ARGV[2])
  queue()
  within(3, 2)
  local s = seat(ARGV[1])
  if seq <= s.seq then fail('SEQ', string.format('%.0f', s.seq)) end
  local reply, kept = {0}, {}
  for i = 3, #ARGV, 2 do
    local e, b, id, index = call('HGET', s.key, ARGV[i]), nil, field(ARGV[i])
    if id then b = load(id) end
    if e and b and not kept[ARGV[i]] then
      local born, attempt
      if index == 'watch' then born, attempt = tonumber(e), 0 else born, attempt = entry(e) end
      if born == b.born and attempt == tonumber(ARGV[i + 1]) then
        kept[ARGV[i]] = true
        reply[#reply + 1] = ARGV[i]
      end
    end
  end
  local rest = {}
  for _, f in ipairs(task_fields(s.key)) do
    if not kept[f] then rest[#rest + 1] = f; load((field(f))) end
  end

  advance(s, ARGV[2])
  if give_back(s.key, rest, '0', 0) < #rest then reply[1] = 1 end
  save(); wake()
  return reply
end)
