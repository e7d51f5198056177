-- first_dead reads a page of a batch's dead tasks, oldest first, that died before a time (ms).
local function first_dead(id, most, before)
  local page, bytes, from = {}, 0, 0
  repeat
    local some = call('LRANGE', P .. 'd:' .. id, from, from + 3)
    for _, e in ipairs(some) do
      local index, attempt, deaths, at, n, rest = match(e, '^(%d+):(%d+):(%d+):(%d+):(%d+):(.*)$')
      if #page >= most or bytes >= BYTES or tonumber(at) >= before then return page end
      n = tonumber(n)
      page[#page + 1] = {index = index, reason = string.sub(rest, 1, n), payload = string.sub(rest, n + 1)}
      bytes = bytes + #e
    end
    from = from + 4
  until #some < 4
  return page
end

-- forget_dead removes that page.
local function forget_dead(id, page)
  call('LTRIM', P .. 'd:' .. id, #page, -1)
  for _, d in ipairs(page) do q.bytes = q.bytes - cost(d.payload, d.reason) end
  if call('EXISTS', P .. 'd:' .. id) == 0 then call('ZREM', DEAD, id) end
end
