"""What happens on the server for semaphores and read/write locks, in Lua 5.1 (the rules are in `core/permits.py`; those
about writes, pushes and times in `scripts.py` hold here, too).

    KEYS   holders  hash, owner → "<n> <token> <slots> <details>"; "<token>@<since>" if the token is not the time.
                    Its field "" is the pool: "<token> <limit> <used> <top> <tickets>"
           ends     sorted set, owners by the time at which their permits end (ms)
           free     sorted set, slots below `top` that nobody has, as ranges ("3", "5-9") by their first slot
           queue    sorted set, waiting owners by ticket
           waiters  hash, waiting owner → "<seen> <ttl> <ticket> <n> <channel> <details>"
           unheard  sorted set, by `seen`: waiters that left the queue because nobody listens to their channel. They
                    get their old position when they claim again
           broken   sorted set, owners that were force-released, by the time at which their permits would have ended
           notes    hash, such an owner → what it is to be told, if the operator gave a reason

The pool: the last token, the limit in force, the permits that holders have, the first slot that nobody ever had (since
all were free), and the last ticket. `top` = `used` means that `free` is empty. Slots are ranges, "0-4,7": one permit
costs as much as a thousand. A read/write lock has "-".

Nothing here looks at all holders but INSPECT and FORCE_RELEASE: the first to end is the first of `ends`, and the lowest
free slot the first of `free`. Therefore 10,000 holders cost what 10 do.

`holders`, `ends` and `free` expire together, a day after the last end or later; that expiry only grows. If the server
has evicted one of them, the others say less than was granted, or are forgotten, too: a name without its pool begins
anew, and permits that no end belongs to are free.

A grant writes its holder and the pool by one command, before `ends`. A removal writes the pool last. So a script that
fails in between leaves too many permits in use, never too few.
"""

from __future__ import annotations

from gripfast.core.ports import RW_LIMIT
from gripfast.stores.redis.scripts import MEMORY_MS, TOKEN_MOST, WINDOW_MS, Script

KEYS = ("holders", "ends", "free", "queue", "waiters", "unheard", "broken", "notes")
SETTLED_MOST = 100
"""Holders that one request removes because their time is over, and waiters that it serves or removes."""
SLACK_MS = 3_600_000
"""The keys expire so much later than they must, so that their expiry is not written by every request."""

_NAMES = "local " + ", ".join(KEYS) + " = " + ", ".join(f"KEYS[{at + 1}]" for at in range(len(KEYS))) + "\n"

_NOW = """
local time = redis.call('TIME')
local at = time[1] * 1000000 + time[2]
local now = math.floor(at / 1000)
"""

_KEEP = f"""
local function keep_for(ms)
  if redis.call('PTTL', holders) < ms then
    for _, key in ipairs({{holders, ends, free}}) do
      redis.call('PEXPIRE', key, string.format('%.0f', ms + {SLACK_MS}))
    end
  end
end
"""

_WHY = """
local function why(owner)
  if not redis.call('ZSCORE', broken, owner) then
    return 'expired'
  end
  local note = redis.call('HGET', notes, owner)
  return note and 'broken\\n' .. note or 'broken'
end
"""

_POOL = f"""
local more, is_changed, is_new = 0, false, false
local function number(text)
  return tonumber(text) or 0
end
local token, limit, used, top, tickets
do
  local pool = redis.call('HGET', holders, '')
  local a, b, c, d, e = string.match(pool or '', '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  token, limit, used, top, tickets = number(a), number(b), number(c), number(d), number(e)
  if not a then
    redis.call('DEL', holders, ends, free)
    is_new = true
  end
end

local function pool()
  return string.format('%.0f %.0f %.0f %.0f %.0f', token, limit, used, top, tickets)
end

local function remember(ttl)
  keep_for(ttl + {MEMORY_MS} + math.max(0, math.ceil((token - at) / 1000)))
end

local function save()
  if is_changed then
    redis.call('HSET', holders, '', pool())
    if is_new then
      remember(0)
    end
    is_changed = false
  end
end

local function range(first, last)
  return first == last and string.format('%.0f', first) or string.format('%.0f-%.0f', first, last)
end

local function ends_of(range)
  local first, last = string.match(range, '^(%d+)%-?(%d*)$')
  return tonumber(first), tonumber(last) or tonumber(first)
end

local function take_slots(n)
  if limit == {RW_LIMIT} then
    return '-'
  end
  local taken = {{}}
  while n > 0 do
    local lowest = top > used and redis.call('ZRANGE', free, 0, 0)[1]
    local first, last = top, top + n - 1
    if lowest then
      first, last = ends_of(lowest)
      if last - first + 1 > n then
        redis.call('ZADD', free, first + n, range(first + n, last))
        last = first + n - 1
      end
      redis.call('ZREM', free, lowest) -- last: an empty set would go, and its expiry with it
    else
      top = last + 1
    end
    n, used = n - (last - first + 1), used + last - first + 1
    taken[#taken + 1] = range(first, last)
  end
  return table.concat(taken, ',')
end

local function expire_with_holders(key)
  redis.call('PEXPIRE', key, math.max(1, redis.call('PTTL', holders)))
end

local function free_slots(slots)
  local is_first = top == used
  for range in string.gmatch(slots, '%d+%-?%d*') do
    redis.call('ZADD', free, ends_of(range), range)
  end
  if is_first then
    expire_with_holders(free)
  end
end

local function reset()
  redis.call('DEL', ends, free, holders)
  used, top, is_changed, is_new = 0, 0, true, true
end

local function remove(owner)
  local n, slots = string.match(redis.call('HGET', holders, owner) or '', '^(%d+) %S+ (%S+) ')
  redis.call('ZREM', ends, owner)
  if n then
    redis.call('HDEL', holders, owner)
    if used == tonumber(n) then
      top = 0
      redis.call('DEL', free)
    elseif slots ~= '-' then
      free_slots(slots)
    end
    used, is_changed = used - n, true
  end
  return n
end

local function end_of(owner)
  local ending = tonumber(redis.call('ZSCORE', ends, owner) or nil)
  return ending and ending >= now and ending or nil
end

local function grant(owner, n, ttl, details)
  token = (token < at or token >= {TOKEN_MOST}) and at or token + 1
  local is_first, slots = used == 0, take_slots(n)
  if slots == '-' then
    used = used + n
  end
  local stamp = string.format(token == at and '%.0f' or '%.0f@%.0f', token, at)
  local holder = string.format('%.0f %s %s %s', n, stamp, slots, details)
  redis.call('HSET', holders, owner, holder, '', pool())
  redis.call('ZADD', ends, string.format('%.0f', now + ttl), owner)
  is_changed = false
  remember(ttl)
  if is_first then
    expire_with_holders(ends)
  end
  return slots
end
"""

_SETTLE = f"""
local function leave(owner)
  redis.call('ZREM', queue, owner)
  redis.call('ZREM', unheard, owner)
  redis.call('HDEL', waiters, owner)
end

local function is_heard(channel)
  return redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0
end

local function set_aside(owner, seen)
  redis.call('ZREM', queue, owner)
  redis.call('ZADD', unheard, seen, owner)
  redis.call('PEXPIRE', unheard, {WINDOW_MS})
  local oldest = redis.call('ZRANGE', unheard, 0, 1, 'WITHSCORES')
  for at = 1, #oldest, 2 do
    if now - oldest[at + 1] > {WINDOW_MS} then
      leave(oldest[at])
    end
  end
end

local function tell(owner, n, ttl, channel, details)
  local granted = math.min(ttl, {WINDOW_MS})
  local slots = grant(owner, n, granted, details)
  local told = redis.pcall('PUBLISH', channel, string.format('%s %.0f %.0f/%s', owner, token, granted, slots))
  if type(told) ~= 'number' then
    remove(owner)
    save()
    error(told.err, 0) -- not allowed to, so nothing was published: the caller is told
  end
  leave(owner)
end

local function remove_ended()
  for _ = 1, {SETTLED_MOST} do
    local first = redis.call('ZRANGE', ends, 0, 0, 'WITHSCORES')
    if not first[1] then
      if used > 0 then
        reset()
      end
      return
    elseif tonumber(first[2]) >= now then
      return
    end
    remove(first[1])
  end
  more = 1
end

-- Whether nobody waits any more; and what the asker got, if it was in the queue.
local function settle(asker)
  local slots
  for _ = 1, {SETTLED_MOST} do
    local owner = redis.call('ZRANGE', queue, 0, 0)[1]
    if not owner then
      return true, slots
    end
    local waiter = redis.call('HGET', waiters, owner) or ''
    local seen, ttl, n, channel, details = string.match(waiter, '^(%d+) (%d+) %d+ (%d+) (%S+) (.*)$')
    n, ttl = tonumber(n), tonumber(ttl)
    if not seen or (owner ~= asker and now - seen > {WINDOW_MS}) then
      leave(owner)
    elseif owner ~= asker and not is_heard(channel) then
      set_aside(owner, seen)
    elseif used + n > limit then
      return false, slots
    elseif owner == asker then
      slots = grant(owner, n, ttl, details)
      asker_token = token
      leave(owner)
    else
      tell(owner, n, ttl, channel, details)
    end
  end
  more = 1
  return false, slots
end
"""

_ALL = _NAMES + _NOW + _KEEP + _POOL + "local asker_token\n" + _SETTLE

# ARGV: owner, ttl, n, limit, channel ("" to stay out of the queue), details.
# {1, more, token, slots}, or {0, more, 1 if the asker is queued and would hear a push of this server, the limit if that
# is why, token, waiters, and of the first whose permits end: owner, ms, holder}.
CLAIM = Script(
    f"""
{_ALL}
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
  if is_free and used + n <= limit then
    local slots = grant(owner, n, ttl, details)
    return granted(token, slots)
  end
  if channel ~= '' then
    tickets, is_changed = tickets + 1, true
    wait(tickets, n, channel)
  end
end
return refused(channel ~= '' and is_heard(channel) and 1 or 0, 0)
""",
    keys=len(KEYS),
    arguments=6,
)

# ARGV: owner; "" only settles. {1 if it had permits, more, why it had none}. Whatever it had is gone afterwards.
GIVE_BACK = Script(
    f"""
{_ALL}
{_WHY}
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
""",
    keys=len(KEYS),
    arguments=1,
)

# ARGV: owner, ttl, "1" to shorten. 1, or why it has none; never sets what is absent.
RENEW = Script(
    f"""
{_NAMES}
{_NOW}
local owner, ttl = ARGV[1], tonumber(ARGV[2])
local ending = tonumber(redis.call('ZSCORE', ends, owner) or nil)
if not ending or ending < now then
  {_WHY}
  return why(owner)
end
if ARGV[3] == '1' or ending < now + ttl then
  redis.call('ZADD', ends, string.format('%.0f', now + ttl), owner)
end
{_KEEP}
keep_for(ttl + {MEMORY_MS})
return 1
""",
    keys=len(KEYS),
    arguments=3,
)

# ARGV: owner, n. {1 if it has permits, more, why it has none}. Of a read/write lock: there are no slots.
DOWNGRADE = Script(
    f"""
{_ALL}
{_WHY}
local owner, n, mine = ARGV[1], tonumber(ARGV[2]), 0
remove_ended()
local had, rest = string.match(redis.call('HGET', holders, owner) or '', '^(%d+)( .*)$')
if had and end_of(owner) then
  mine = 1
  if tonumber(had) > n then
    used, is_changed = used - (had - n), true
    redis.call('HSET', holders, owner, string.format('%.0f', n) .. rest, '', pool())
  end
end
settle()
save()
return {{mine, more, mine == 1 and '' or why(owner)}}
""",
    keys=len(KEYS),
    arguments=2,
)

# ARGV: limit. {1, more}.
RESIZE = Script(
    f"""
{_ALL}
remove_ended()
limit, is_changed = tonumber(ARGV[1]), true
save()
for _, key in ipairs({{queue, unheard}}) do
  for _, owner in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    local n, channel = string.match(redis.call('HGET', waiters, owner) or '', '^%d+ %d+ %d+ (%d+) (%S+) ')
    if n and tonumber(n) > limit then
      leave(owner)
      if is_heard(channel) then
        redis.call('PUBLISH', channel, owner .. ' 0 0')
      end
    end
  end
end
settle()
save()
return {{1, more}}
""",
    keys=len(KEYS),
    arguments=1,
)

# ARGV: owner or "", slot or "", what the holder is to be told or "". {1 if someone had them, more}.
FORCE_RELEASE = Script(
    f"""
{_ALL}
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
""",
    keys=len(KEYS),
    arguments=3,
)

# {ms, pool, waiters, owners and their ends, owners and their holders}
INSPECT = Script(
    f"""
{_NAMES}
{_NOW}
return {{now, redis.call('HGET', holders, '') or '', redis.call('ZCARD', queue),
  redis.call('ZRANGE', ends, 0, -1, 'WITHSCORES'), redis.call('HGETALL', holders)}}
""",
    keys=len(KEYS),
    arguments=0,
)
