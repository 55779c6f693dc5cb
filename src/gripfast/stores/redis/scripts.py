"""What happens on the server, in Lua 5.1: one script per request, and one way to settle who is next.

    KEYS   lock     the lock itself: a plain string, the owner's id, with PX
           fence    "<token> <card>\n<owner>": the last grant; it outlives the lease, so that the token does.
                    "<token>@<since> …" if the clock had gone back, so that the token could not be the time
           line     sorted set, waiting owners by ticket
           places   hash, waiting owner → "<seen> <ttl> <channel> <card>\n<owner>"
           broken   the owner that was force-released last
           note     "<owner>\n<text>": what it is to be told, if the operator gave a reason

Whenever the lock is absent, however it went away, the first waiter that is still there gets it: nobody passes the
queue. The lock is written before anything is published: a server that refuses the write (OOM, MISCONF, READONLY) has
told nobody. And nothing is published that could be taken back: a message goes on to the subscribers of all replicas,
however many PUBLISH has counted here. So the script reads NUMSUB, which counts the subscribers of this very server,
before it writes anything. A hand-over brings at most 10 s (`WINDOW_MS`), so that one to a dead waiter costs no more.
The first renewal brings the rest; a waiter that does not renew claims once more before it returns. What is replaced is
overwritten, and what goes is deleted last: while a Cluster moves a slot, a script may touch a key that is there, and
fails at one that it has deleted before. A request may arrive late, after others of its owner: unless it is told to,
none shortens a lease. `seen` and all ttls are milliseconds, tokens and `since` microseconds of the server's clock.

The uncontended path of claim and release comes first in their texts and defines no function: that alone would cost
as much as the work.
"""

from __future__ import annotations

from gripfast.core import rules
from gripfast.stores.redis.script import Script as Script

WINDOW_MS = int(rules.WAITER_WINDOW * 1000)
MEMORY_MS = rules.TOKEN_MEMORY_US // 1000

EXPIRY_EVERY = 2
LINE_MS = 2 * WINDOW_MS
"""A line and its places expire by themselves when all who waited have died. That expiry is not written by everyone who
joins, but by the first, by every waiter that asks again, and by every so-manieth that joins. Who waits asks again
after 3 s at most: so it is written at least every 6 s. It is longer than the window by more than that, so a waiter that
is paused right after it has joined keeps its position as long as any other."""

TOKEN_MOST = 2**53
"""In the year 2255. Lua does not count further, so what is larger was written by somebody else, and is no token."""

_WRITE = f"""
  local time = time or redis.call('TIME')
  local at = time[1] * 1000000 + time[2]
  local text = string.format('%.0f', at)
  redis.call('SET', lock, owner, 'PX', ttl)
  local last = redis.call('SET', fence, text .. tail, 'PX', keep, 'GET')
  local before = last and tonumber(string.match(last, '^%d+'))
  if not before or before < at then
    return at
  end
  if before >= {TOKEN_MOST} then
    return at
  end
  local token = string.format('%.0f', before + 1)
  redis.call('SET', fence, token .. '@' .. text .. tail, 'PX', keep + math.ceil((before + 1 - at) / 1000))
  return before + 1
"""

_SETTLE = f"""
local time

local function write(owner, ttl, keep, tail)
{_WRITE}
end

local function leave(owner)
  redis.call('ZREM', line, owner)
  redis.call('HDEL', places, owner)
end

local frees = false

local function is_heard(channel)
  local heard = redis.pcall('PUBSUB', 'NUMSUB', channel)
  if heard.err then
    if frees then
      redis.call('DEL', lock)
    end
    error(heard.err, 0) -- not allowed to: the caller is told
  end
  return heard[2] > 0
end

local function tell(owner, ttl, channel, tail)
  if not is_heard(channel) then
    return false
  end
  redis.call('ZREM', line, owner) -- first: a server without memory left allows this, and then the rest
  local granted = math.min(ttl, {WINDOW_MS})
  local token = write(owner, granted, granted + {MEMORY_MS}, tail)
  local told = redis.pcall('PUBLISH', channel, string.format('%s %.0f %.0f', owner, token, granted))
  if type(told) ~= 'number' then
    redis.call('ZADD', line, 0, owner)
    redis.call('DEL', lock)
    error(told.err, 0) -- not allowed to, so nothing was published: the caller is told
  end
  redis.call('HDEL', places, owner)
  return true
end

local function now_ms()
  time = time or redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

-- Who has the lock now, or may take it: the asker. If that is nobody, the lock is as it was.
local function pass_on(asker, owners)
  local skipped = 0
  owners = owners or redis.call('ZRANGE', line, 0, 0)
  while #owners > 0 do
    for _, owner in ipairs(owners) do
      if owner == asker then
        return owner
      end
      local place = redis.call('HGET', places, owner)
      local seen, ttl, channel, tail = string.match(place or '', '^(%d+) (%d+) (%S+)(.*)$')
      if not seen or now_ms() - seen > {WINDOW_MS} then
        leave(owner)
      elseif tell(owner, tonumber(ttl), channel, tail) then
        return owner
      else
        skipped = skipped + 1
      end
    end
    owners = redis.call('ZRANGE', line, skipped, skipped + 31)
  end
end

local function hand_over(asker, first)
  frees = true
  local next = pass_on(asker, first)
  frees = false
  return next
end
"""

_TOUCH_DONE = """
if seen[1] and string.sub(seen[1], 1, 5) == 'done:' then
  redis.call('PEXPIRE', lock, math.max(1, redis.call('PTTL', lock)))
end
"""
"""Nothing changes, but it is written: whoever is told "done" believes it, so the replicas have to acknowledge that."""

_LOOK = """
local function look()
  return {redis.call('GET', lock), redis.call('PTTL', lock), redis.call('GET', fence), redis.call('ZCARD', line)}
end
"""

_NAMES = "local lock, fence, line, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]\n"


# ARGV: owner, ttl, how long to keep the token, " <card>\n<owner>", channel ("" to stay out of the line).
# A number is the token; otherwise who has it, for how long, its fence, and 1 if the owner is queued and would get a
# push of this server. How many wait is counted only for whoever does not join them just now.
CLAIM = Script(
    lambda and_open: (
        f"""
{_NAMES}
local owner, ttl, keep, tail, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local time
if redis.call('EXISTS', lock, line) == 0{and_open} then
{_WRITE}
end
{_SETTLE}
-- no MGET: it would take a key of another type for none
local seen = {{redis.call('GET', lock), redis.call('GET', fence)}}
if seen[1] == owner then
  local token, of = string.match(seen[2] or '', '^(%d+).-\\n(.*)$')
  if of ~= owner or tonumber(token) >= {TOKEN_MOST} then
    return write(owner, ttl, keep, tail)
  end
  leave(owner)
  redis.call('PEXPIRE', lock, math.max(ttl, redis.call('PTTL', lock)))
  if redis.call('PTTL', fence) < tonumber(keep) then
    redis.call('PEXPIRE', fence, keep)
  end
  return tonumber(token)
end
if not seen[1]{and_open} then
  local next = hand_over(owner)
  if next == owner then
    leave(owner)
  end
  if not next or next == owner then
    return write(owner, ttl, keep, tail)
  end
  seen = {{redis.call('GET', lock), redis.call('GET', fence)}}
end
{_TOUCH_DONE if and_open else ""}
local hears, waiters = 0, nil
if channel ~= '' then
  hears = is_heard(channel) and 1 or 0
  local place = string.format('%.0f %s %s%s', now_ms(), ttl, channel, tail)
  local is_new, expires = redis.call('HSET', places, owner, place) == 1, true
  if is_new or not redis.call('ZSCORE', line, owner) then
    local last = tonumber(redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')[2] or 0)
    redis.call('ZADD', line, 'NX', last + 1, owner)
    expires, waiters = last % {EXPIRY_EVERY} == 0, is_new and 1
  end
  if expires then
    redis.call('PEXPIRE', line, {LINE_MS})
    redis.call('PEXPIRE', places, {LINE_MS})
  end
end
return {{seen[1], redis.call('PTTL', lock), seen[2], waiters or redis.call('ZCARD', line), hears}}
"""
    ),
    keys=4,
    arguments=5,
    is_believed=True,
)

# ARGV: owner. 1 if it was this owner's.
RELEASE = Script(
    lambda and_open: (
        f"""
{_NAMES}
local holder = redis.call('GET', lock)
local mine = holder == ARGV[1] and 1 or 0
if holder and mine == 0 then
  return 0
end
local first = redis.call('ZRANGE', line, 0, 0)
if first[1]{and_open} then
  {_SETTLE}
  if hand_over(nil, first) then
    return mine
  end
end
if mine == 1 then
  redis.call('DEL', lock)
end
return mine
"""
    ),
    keys=4,
    arguments=1,
)

# ARGV: owner, ttl, how long to keep the token, "1" to shorten. 1 if it is this owner's; never sets what is absent.
RENEW = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local left = ARGV[4] == '1' and 0 or redis.call('PTTL', KEYS[1])
redis.call('PEXPIRE', KEYS[1], math.max(left, ARGV[2]))
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return 1
""",
    keys=2,
    arguments=4,
    is_believed=True,
)

# ARGV: owner, which does not have it. Why; behind "broken" a line's end and the note, if there is one for this owner.
WHY = Script(
    """
local owner = ARGV[1]
if redis.call('GET', KEYS[2]) == owner then
  local note = redis.call('GET', KEYS[3])
  local is_its = note and string.sub(note, 1, #owner + 1) == owner .. '\\n'
  return 'broken' .. (is_its and string.sub(note, #owner + 1) or '')
end
return redis.call('EXISTS', KEYS[1]) == 1 and 'taken' or 'expired'
""",
    keys=3,
    arguments=1,
)

# ARGV: owner. Whatever it has is gone afterwards.
ABANDON = Script(
    lambda and_open: (
        f"""
{_NAMES}
{_SETTLE}
leave(ARGV[1])
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[1] then
  return 1
end
if not (true{and_open} and hand_over()) and holder then
  redis.call('DEL', lock)
end
return 1
"""
    ),
    keys=4,
    arguments=1,
)

# ARGV: what the holder is to be told; "" for nothing. 1 if someone had it.
FORCE_RELEASE = Script(
    lambda and_open: (
        f"""
{_NAMES}
{_SETTLE}
local holder, left = redis.call('GET', lock), redis.call('PTTL', lock)
if holder and string.sub(holder, 1, 5) == 'done:' then
  return 0 -- only its owner id can end that
end
if holder and left > 0 then
  redis.call('ZREM', line, '') -- nothing, but a server without memory left allows it, and then the rest
  redis.call('SET', KEYS[5], holder, 'PX', left)
  if ARGV[1] ~= '' then
    redis.call('SET', KEYS[6], holder .. '\\n' .. ARGV[1], 'PX', left)
  end
end
if not (true{and_open} and hand_over()) and holder then
  redis.call('DEL', lock)
end
return holder and 1 or 0
"""
    ),
    keys=6,
    arguments=1,
)

# ARGV: owner, the marker that it leaves the lock to, for how long, how long to keep the token. 1 if it is the marker's
# now. The waiters stay queued.
KEEP = Script(
    lambda and_open: (
        f"""
{_NAMES}
{_SETTLE}
local owner, marker = ARGV[1], ARGV[2]
leave(owner)
local holder = redis.call('GET', lock)
if holder == marker then
  redis.call('PEXPIRE', lock, math.max(1, redis.call('PTTL', lock)))
  return 1
end
if holder ~= owner then
  if not holder{and_open} then
    hand_over()
  end
  return 0
end
redis.call('SET', lock, marker, 'PX', ARGV[3])
local token, card = string.match(redis.call('GET', fence) or '', '^(%d+)%S* ([^\\n]*)\\n')
if token then
  local time = redis.call('TIME')
  local since = string.format('%.0f', time[1] * 1000000 + time[2])
  redis.call('SET', fence, token .. '@' .. since .. ' ' .. card .. '\\n' .. marker, 'PX', ARGV[4])
end
return 1
"""
    ),
    keys=4,
    arguments=4,
    is_believed=True,
)

# ARGV: the owner that has it, the one that adopts it, ttl, how long to keep the token, " <card>\n<owner>". The token;
# 0 if it is neither's. The adopter's own request may come twice.
ADOPT = Script(
    lambda and_open: (
        f"""
{_NAMES}
{_SETTLE}
local former, owner, ttl, keep, tail = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local holder = redis.call('GET', lock)
if holder == owner then
  local token, of = string.match(redis.call('GET', fence) or '', '^(%d+).-\\n(.*)$')
  if of == owner and tonumber(token) < {TOKEN_MOST} then
    redis.call('PEXPIRE', lock, math.max(ttl, redis.call('PTTL', lock)))
    return tonumber(token)
  end
elseif holder and not (true{and_open}) then
  return 'grace'
elseif holder ~= former then
  return 0
end
return write(owner, ttl, keep, tail)
"""
    ),
    keys=4,
    arguments=5,
    is_believed=True,
)

# ARGV: owner, the token of the lease that it has detached. That stays; whatever else the owner has is gone afterwards.
DISOWN = Script(
    lambda and_open: (
        f"""
{_NAMES}
{_SETTLE}
leave(ARGV[1])
local holder = redis.call('GET', lock)
if holder and holder ~= ARGV[1] then
  return 1
end
if holder and string.match(redis.call('GET', fence) or '', '^%d+') == ARGV[2] then
  return 1
end
if not (true{and_open} and hand_over()) and holder then
  redis.call('DEL', lock)
end
return 1
"""
    ),
    keys=4,
    arguments=2,
)

INSPECT = Script(_NAMES + _LOOK + "return look()", keys=4, arguments=0)

# KEYS: the marker, "<run id> <replication id> <since> <max_ttl>", in ms, which never expires. ARGV, in ms: for how long
# a server before this one may go on, the largest ttl if there is no marker yet, the largest ttl that the client knows
# to be in force; then who begins without a grace: "open" for any server, "new" for one that has none to be ended, or
# one incarnation. {ms of grace that are left, what the two arguments of guarded scripts must be, the largest ttl, why a
# grace begins, how many replicas follow}
MARK = Script(
    """
local function field(section, name)
  return string.match(redis.call('INFO', section), '\\n' .. name .. ':(%w+)')
end
local run_id, replid = field('server', 'run_id'), field('replication', 'master_replid')
if not run_id or not replid then
  return redis.error_reply('NOINFO INFO tells no run_id and no master_replid')
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local old = redis.call('GET', KEYS[1])
local of_run, of_replid, since, max_ttl = string.match(old or '', '^(%w+) (%w+) (%d+) (%d+)$')
local why = ''
if of_run ~= run_id or of_replid ~= replid or tonumber(since) > now then
  since, why = now, of_run and 'other' or 'none'
end
local is_over = not of_run or since + max_ttl + ARGV[1] <= now
local is_known = ARGV[4] == 'run_id:' .. run_id .. ' master_replid:' .. replid
if ARGV[4] == 'open' or (ARGV[4] == 'new' and is_over) or is_known then
  since, why = 0, ''
end
max_ttl = math.max(max_ttl or ARGV[2], ARGV[3])
local new = string.format('%s %s %.0f %.0f', run_id, replid, since, max_ttl)
if new ~= old then
  redis.call('SET', KEYS[1], new)
end
local left = math.max(0, since + max_ttl + ARGV[1] - now)
local replicas = tonumber(field('replication', 'connected_slaves'))
return {left, 'run_id:' .. run_id, 'master_replid:' .. replid, max_ttl, why, replicas}
""",
    keys=1,
    arguments=4,
)
