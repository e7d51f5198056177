#!lua flags=allow-oom
-- set changes the weight and the state of a batch, if the version is newer than what was set last. ARGV: batch, life,
-- version, weight, open, paused or cancelled. Answers 1 if it was set.
return run(function()
  local id, version, weight, state = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
  queue()
  local b = need(id)
  if b.life ~= ARGV[2] then fail('LIFE', b.life) end
  if version <= b.version then return 0 end
  if b.state == 'submitting' and state ~= 'cancelled' then fail('STATE', b.state) end
  if b.state == 'cancelled' and state ~= 'cancelled' then fail('STATE', b.state) end
  if b.run then q.weights = q.weights + weight - b.weight end
  b.version, b.weight = version, weight
  b.state = state
  settle(b); save(); wake()
  return 1
end)
