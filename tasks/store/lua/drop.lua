#!lua flags=allow-oom
-- drop deletes a page of a batch's dead tasks. ARGV: batch, at most, before (ms). Answers how many.
return run(function()
  local id, most, before = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
  queue()
  if most > ITEMS then fail('LIMIT', 'more than ' .. ITEMS .. ' items') end
  if not q.id then return 0 end
  local page = first_dead(id, most, before)
  forget_dead(id, page)
  save()
  return #page
end)
