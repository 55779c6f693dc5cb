"""What happens on the server for semaphores and read/write locks: one script per request.

`permit_parts.py` says what the server keeps, and has what the scripts share: how a name is settled."""

from __future__ import annotations

from gripfast.stores.redis.permit_parts import KEEP, KEYS, NAMES, NOW, SETTLED_MOST, TOUCH, WHY, all_parts
from gripfast.stores.redis.scripts import MEMORY_MS, WINDOW_MS, Script

# ARGV: owner, ttl, n, limit, channel ("" to stay out of the queue), details.
# {1, more, token, slots}, or {0, more, 1 if the asker is queued and would hear a push of this server, the limit if that
# is why, -1 if the server is in grace, token, waiters, and of the first whose permits end: owner, ms, holder}.
CLAIM = Script(
    lambda and_open: (
        f"""
{all_parts(and_open)}
local owner, ttl, n, channel, details = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[5], ARGV[6]
remove_ended()

local function granted(token, slots)
  save()
  return {{1, more, token, slots}}
end

local function refused(hears, why)
  save()
  local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
  local taken = {{0, more, hears, why, token, redis.call('ZCARD', queue)}}
  if first[1] then
    taken[7], taken[8], taken[9] = first[1], first[2] - now, redis.call('HGET', holders, first[1]) or ''
  end
  return taken
end

local function wait(ticket, n, channel)
  local waiter = string.format('%.0f %.0f %.0f %.0f %s %s', now, ttl, ticket, n, channel, details)
  redis.call('HSET', waiters, owner, waiter)
  redis.call('ZREM', unheard, owner)
  redis.call('ZADD', queue, ticket, owner)
  for _, key in ipairs({{queue, waiters, unheard}}) do
    redis.call('PEXPIRE', key, {WINDOW_MS})
  end
end

local holder = redis.call('HGET', holders, owner)
if holder then
  local ending = end_of(owner)
  if ending then
    local token, slots = string.match(holder, '^%d+ (%d+)%S* (%S+) ')
    if ending < now + ttl then
      redis.call('ZADD', ends, string.format('%.0f', now + ttl), owner)
      remember(ttl)
    else
      {TOUCH}
    end
    leave(owner)
    settle()
    return granted(tonumber(token), slots)
  end
  remove(owner)
end
if limit == 0 then
  limit, is_changed = tonumber(ARGV[4]), true
end
local waiter = redis.call('HGET', waiters, owner) or ''
local ticket, queued_n, old_channel = string.match(waiter, '^%d+ %d+ (%d+) (%d+) (%S+) ')
if ticket then
  ticket, queued_n = tonumber(ticket), tonumber(queued_n)
  if queued_n > limit then
    leave(owner)
    settle()
    return refused(0, limit)
  end
  wait(ticket, queued_n, channel ~= '' and channel or old_channel)
  local _, slots = settle(owner)
  if slots then
    return granted(asker_token, slots)
  end
else
  local is_free = settle()
  if limit ~= tonumber(ARGV[4]) then
    return refused(0, limit)
  end
  if is_free and used + n <= limit and is_open then
    local slots = grant(owner, n, ttl, details)
    return granted(token, slots)
  end
  if channel ~= '' then
    tickets, is_changed = tickets + 1, true
    wait(tickets, n, channel)
  end
end
return refused(channel ~= '' and is_heard(channel) and 1 or 0, not is_open and used + n <= limit and -1 or 0)
"""
    ),
    keys=len(KEYS),
    arguments=6,
    is_believed=True,
)

# ARGV: owner; "" only settles. {1 if it had permits, more, why it had none}. Whatever it had is gone afterwards.
GIVE_BACK = Script(
    lambda and_open: (
        f"""
{all_parts(and_open)}
{WHY}
local owner, mine = ARGV[1], 0
remove_ended()
if owner ~= '' then
  local is_over = more == 1 and not end_of(owner) -- otherwise none is left whose time is over
  mine = remove(owner) and not is_over and 1 or 0
  if redis.call('EXISTS', waiters) == 1 then
    leave(owner)
  end
end
settle()
save()
return {{mine, more, mine == 1 and '' or why(owner)}}
"""
    ),
    keys=len(KEYS),
    arguments=1,
)

# ARGV: owner, ttl, "1" to shorten. 1, or why it has none; never sets what is absent.
RENEW = Script(
    f"""
{NAMES}
{NOW}
local owner, ttl = ARGV[1], tonumber(ARGV[2])
local ending = tonumber(redis.call('ZSCORE', ends, owner) or nil)
if not ending or ending < now then
  {WHY}
  return why(owner)
end
if ARGV[3] == '1' or ending < now + ttl then
  redis.call('ZADD', ends, string.format('%.0f', now + ttl), owner)
else
  {TOUCH}
end
{KEEP}
keep_for(ttl + {MEMORY_MS})
return 1
""",
    keys=len(KEYS),
    arguments=3,
    is_believed=True,
)

# ARGV: owner, n. {1 if it has permits, more, why it has none}. Of a read/write lock: there are no slots.
DOWNGRADE = Script(
    lambda and_open: (
        f"""
{all_parts(and_open)}
{WHY}
local owner, n, mine = ARGV[1], tonumber(ARGV[2]), 0
remove_ended()
local had, rest = string.match(redis.call('HGET', holders, owner) or '', '^(%d+)( .*)$')
if had and end_of(owner) then
  mine = 1
  if tonumber(had) > n then
    used, is_changed = used - (had - n), true
    redis.call('HSET', holders, owner, string.format('%.0f', n) .. rest, '', pool())
  else
    {TOUCH}
  end
end
settle()
save()
return {{mine, more, mine == 1 and '' or why(owner)}}
"""
    ),
    keys=len(KEYS),
    arguments=2,
    is_believed=True,
)

# ARGV: limit. {1, more}.
RESIZE = Script(
    lambda and_open: (
        f"""
{all_parts(and_open)}
remove_ended()
limit, is_changed = tonumber(ARGV[1]), true
save()
for _, key in ipairs({{queue, unheard}}) do
  for _, owner in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local n, channel = string.match(redis.call('HGET', waiters, owner) or '', '^%d+ %d+ %d+ (%d+) (%S+) ')
    if n and tonumber(n) > limit then
      leave(owner)
      if is_heard(channel) then
        redis.call('PUBLISH', channel, owner .. ' 0 0/-')
      end
    end
  end
end
settle()
save()
return {{1, more}}
"""
    ),
    keys=len(KEYS),
    arguments=1,
    is_believed=True,
)

# ARGV: owner or "", slot or "", what the holder is to be told or "". {1 if someone had them, more}.
FORCE_RELEASE = Script(
    lambda and_open: (
        f"""
{all_parts(and_open)}
local owner, slot, note = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local longest, removed = 0, 0

local function has_slot(holder)
  for range in string.gmatch(string.match(holder, '^%d+ %S+ (%S+) ') or '', '%d+%-?%d*') do
    local first, last = ends_of(range)
    if first <= slot and slot <= last then
      return true
    end
  end
end

local function owner_of_slot()
  local all = redis.call('HGETALL', holders)
  for at = 1, #all, 2 do
    if all[at] ~= '' and has_slot(all[at + 1]) then
      return all[at]
    end
  end
end

local function note_broken(owner, ending)
  redis.call('ZADD', broken, ending, owner)
  if note ~= '' then
    redis.call('HSET', notes, owner, note)
  end
  longest, removed = math.max(longest, ending - now + 1), 1
end

local function forget_broken()
  for _ = 1, {SETTLED_MOST} do
    local first = redis.call('ZRANGE', broken, 0, 0, 'WITHSCORES')
    if not first[1] or tonumber(first[2]) >= now then
      return
    end
    redis.call('ZREM', broken, first[1])
    redis.call('HDEL', notes, first[1])
  end
end

remove_ended()
forget_broken()
if owner == '' and not slot then
  local all = redis.call('ZRANGE', ends, 0, -1, 'WITHSCORES')
  if all[1] then
    reset()
  end
  for at = 1, #all, 2 do
    if tonumber(all[at + 1]) >= now then
      note_broken(all[at], tonumber(all[at + 1]))
    end
  end
else
  owner = owner ~= '' and owner or owner_of_slot()
  local ending = owner and end_of(owner)
  if ending then
    remove(owner)
    note_broken(owner, ending)
  end
end
if removed == 1 then
  longest = math.max(longest, redis.call('PTTL', broken))
  redis.call('PEXPIRE', broken, longest)
  redis.call('PEXPIRE', notes, longest)
end
settle()
save()
return {{removed, more}}
"""
    ),
    keys=len(KEYS),
    arguments=3,
)

# {ms, pool, waiters, owners and their ends, owners and their holders}
INSPECT = Script(
    f"""
{NAMES}
{NOW}
return {{now, redis.call('HGET', holders, '') or '', redis.call('ZCARD', queue),
  redis.call('ZRANGE', ends, 0, -1, 'WITHSCORES'), redis.call('HGETALL', holders)}}
""",
    keys=len(KEYS),
    arguments=0,
)
