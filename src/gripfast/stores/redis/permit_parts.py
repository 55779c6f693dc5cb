"""What the scripts for semaphores and read/write locks have in common, in Lua 5.1.

The rules are in `core/permits.py`. What `scripts.py` says of writes, pushes and times holds here, too.

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
from gripfast.stores.redis.scripts import MEMORY_MS, TOKEN_MOST, WINDOW_MS

KEYS = ("holders", "ends", "free", "queue", "waiters", "unheard", "broken", "notes")
SETTLED_MOST = 100
"""Holders that one request removes because their time is over, and waiters that it serves or removes."""
SLACK_MS = 3_600_000
"""The keys expire so much later than they must, so that their expiry is not written by every request."""

NAMES = "local " + ", ".join(KEYS) + " = " + ", ".join(f"KEYS[{at + 1}]" for at in range(len(KEYS))) + "\n"

NOW = """
local time = redis.call('TIME')
local at = time[1] * 1000000 + time[2]
local now = math.floor(at / 1000)
"""

KEEP = f"""
local function keep_for(ms)
  if redis.call('PTTL', holders) < ms then
    for _, key in ipairs({{holders, ends, free}}) do
      redis.call('PEXPIRE', key, string.format('%.0f', ms + {SLACK_MS}))
    end
  end
end
"""

TOUCH = "redis.call('HSET', holders, '', redis.call('HGET', holders, '') or '')"
"""Nothing changes, but it is written: what writes nothing has nothing that a replica could acknowledge."""

WHY = """
local function why(owner)
  if not redis.call('ZSCORE', broken, owner) then
    return 'expired'
  end
  local note = redis.call('HGET', notes, owner)
  return note and 'broken\\n' .. note or 'broken'
end
"""

POOL = f"""
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

SETTLE = f"""
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
    elseif used + n > limit or not is_open then
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


def all_parts(and_open: str) -> str:
    """`and_open`: what has to hold for anything to be granted (`Script`)."""
    return NAMES + NOW + KEEP + POOL + f"local asker_token\nlocal is_open = true{and_open}\n" + SETTLE
