"""What happens on the server, in Lua 5.1: one script per request, and one way to settle who is next.

    KEYS   lock     the lock itself: a plain string, the owner's id, with PX
           fence    "<token> <card>\n<owner>": the last grant; it outlives the lease, so that the token does.
                    "<token>@<since> …" if the clock had gone back, so that the token could not be the time
           line     sorted set, waiting owners by ticket
           places   hash, waiting owner → "<seen> <ttl> <channel> <card>\n<owner>"
           broken   the owner that was force-released last
           note     "<owner>\n<text>": what it is to be told, if the operator gave a reason

Whenever the lock is absent, however it went away, the first waiter who is still there gets it: nobody passes the line.
The lock is written before anything is published: a server that refuses the write (OOM, MISCONF, READONLY) has told
nobody. And nothing is published that could be taken back: a message goes on to the subscribers of all replicas, however
many PUBLISH has counted here. So NUMSUB, which counts those of this very server, is asked before anything is written.
A hand-over brings at most 10 s (`WINDOW_MS`), so that one to a dead waiter costs no more. The first renewal brings the
rest; a waiter that does not renew claims once more before it returns.
A request may arrive late, after others of its owner: unless it is told to, none shortens a lease. `seen` and
all ttls are milliseconds, tokens and `since` microseconds of the server's clock.

The uncontended path of claim and release comes first in their texts and defines no function: that alone would cost
as much as the work.
"""

from __future__ import annotations

import hashlib

from gripfast.core import rules

WINDOW_MS = int(rules.WAITER_WINDOW * 1000)
MEMORY_MS = rules.TOKEN_MEMORY_US // 1000

TOKEN_MOST = 2**53
"""In the year 2255. Lua does not count further, so what is larger was written by somebody else, and is no token."""

_WRITE = f"""
  local time = redis.call('TIME')
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
local function write(owner, ttl, keep, tail)
{_WRITE}
end

local function leave(owner)
  redis.call('ZREM', line, owner)
  redis.call('HDEL', places, owner)
end

local function is_heard(channel)
  return redis.call('PUBSUB', 'NUMSUB', channel)[2] > 0
end

local function tell(owner, ttl, channel, tail)
  if not is_heard(channel) then
    return false
  end
  local granted = math.min(ttl, {WINDOW_MS})
  local token = write(owner, granted, granted + {MEMORY_MS}, tail)
  local told = redis.pcall('PUBLISH', channel, string.format('%s %.0f %.0f', owner, token, granted))
  if type(told) ~= 'number' then
    redis.call('DEL', lock)
    error(told.err, 0) -- not allowed to, so nothing was published: the caller is told
  end
  leave(owner)
  return true
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function hand_over(asker)
  local now, skipped = now_ms(), 0
  while true do
    local owners = redis.call('ZRANGE', line, skipped, skipped + 31)
    if #owners == 0 then
      return nil
    end
    for _, owner in ipairs(owners) do
      if owner == asker then
        return owner
      end
      local place = redis.call('HGET', places, owner)
      local seen, ttl, channel, tail = string.match(place or '', '^(%d+) (%d+) (%S+)(.*)$')
      if not seen or now - seen > {WINDOW_MS} then
        leave(owner)
      elseif tell(owner, tonumber(ttl), channel, tail) then
        return owner
      else
        skipped = skipped + 1
      end
    end
  end
end
"""

_LOOK = """
local function look()
  return {redis.call('GET', lock), redis.call('PTTL', lock), redis.call('GET', fence), redis.call('ZCARD', line)}
end
"""

_NAMES = "local lock, fence, line, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]\n"


class Script:
    """A script's text and what stands before the keys in a packed call of it, by its hash and in full."""

    def __init__(self, text: str, keys: int, arguments: int) -> None:
        self.text = text
        self.sha = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()
        parts = 3 + keys + arguments
        self.by_hash = f"*{parts}\r\n$7\r\nEVALSHA\r\n$40\r\n{self.sha}\r\n$1\r\n{keys}\r\n".encode()
        self._in_full = f"*{parts}\r\n$4\r\nEVAL\r\n${len(text.encode())}\r\n{text}\r\n$1\r\n{keys}\r\n".encode()

    def in_full(self, packed: bytes) -> bytes:
        """The same call with the text, for a server that has forgotten the script."""
        return self._in_full + packed[len(self.by_hash) :]


# ARGV: owner, ttl, how long to keep the token, " <card>\n<owner>", channel ("" to stay out of the line).
# A number is the token; otherwise who has it, and 1 if the asker is in line and would hear a push of this server.
CLAIM = Script(
    f"""
{_NAMES}
local owner, ttl, keep, tail, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
if redis.call('EXISTS', lock, line) == 0 then
{_WRITE}
end
{_SETTLE}
{_LOOK}
local holder = redis.call('GET', lock)
if holder == owner then
  local last = redis.call('GET', fence)
  local token, of = string.match(last or '', '^(%d+).-\\n(.*)$')
  if of ~= owner or tonumber(token) >= {TOKEN_MOST} then
    return write(owner, ttl, keep, tail)
  end
  leave(owner)
  if redis.call('PTTL', lock) < tonumber(ttl) then
    redis.call('PEXPIRE', lock, ttl)
  end
  if redis.call('PTTL', fence) < tonumber(keep) then
    redis.call('PEXPIRE', fence, keep)
  end
  return tonumber(token)
end
if not holder then
  local next = hand_over(owner)
  if next == owner then
    leave(owner)
  end
  if not next or next == owner then
    return write(owner, ttl, keep, tail)
  end
end
local hears = 0
if channel ~= '' then
  hears = is_heard(channel) and 1 or 0
  redis.call('HSET', places, owner, string.format('%.0f %s %s%s', now_ms(), ttl, channel, tail))
  if not redis.call('ZSCORE', line, owner) then
    local end_of_line = redis.call('ZRANGE', line, -1, -1, 'WITHSCORES')
    redis.call('ZADD', line, (end_of_line[2] or 0) + 1, owner)
  end
  redis.call('PEXPIRE', line, {WINDOW_MS})
  redis.call('PEXPIRE', places, {WINDOW_MS})
end
local seen = look()
seen[5] = hears
return seen
""",
    keys=4,
    arguments=5,
)

# ARGV: owner. 1 if it was this owner's.
RELEASE = Script(
    f"""
{_NAMES}
local holder = redis.call('GET', lock)
local mine = 0
if holder == ARGV[1] then
  redis.call('DEL', lock)
  mine = 1
  holder = false
end
if holder or redis.call('EXISTS', line) == 0 then
  return mine
end
{_SETTLE}
hand_over()
return mine
""",
    keys=4,
    arguments=1,
)

# ARGV: owner, ttl, how long to keep the token, "1" to shorten. 1 if it is this owner's; never sets what is absent.
RENEW = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
if ARGV[4] == '1' or redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[3]) then
  redis.call('PEXPIRE', KEYS[2], ARGV[3])
end
return 1
""",
    keys=2,
    arguments=4,
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
    f"""
{_NAMES}
{_SETTLE}
leave(ARGV[1])
local holder = redis.call('GET', lock)
if holder == ARGV[1] then
  redis.call('DEL', lock)
  holder = false
end
if not holder then
  hand_over()
end
return 1
""",
    keys=4,
    arguments=1,
)

# ARGV: what the holder is to be told; "" for nothing. 1 if someone had it.
FORCE_RELEASE = Script(
    f"""
{_NAMES}
{_SETTLE}
local holder, left = redis.call('GET', lock), redis.call('PTTL', lock)
if holder and string.sub(holder, 1, 5) == 'done:' then
  return 0 -- only its owner id can end that
end
if holder then
  redis.call('DEL', lock) -- first: a server without memory left allows this, and then the rest
  if left > 0 then
    redis.call('SET', KEYS[5], holder, 'PX', left)
    if ARGV[1] ~= '' then
      redis.call('SET', KEYS[6], holder .. '\\n' .. ARGV[1], 'PX', left)
    end
  end
end
hand_over()
return holder and 1 or 0
""",
    keys=6,
    arguments=1,
)

# ARGV: owner, the marker that it leaves the lock to, for how long, how long to keep the token. 1 if it is the marker's
# now. The waiters stay in line.
KEEP = Script(
    f"""
{_NAMES}
{_SETTLE}
local owner, marker = ARGV[1], ARGV[2]
leave(owner)
local holder = redis.call('GET', lock)
if holder == marker then
  return 1
end
if holder ~= owner then
  if not holder then
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
""",
    keys=4,
    arguments=4,
)

# ARGV: the owner that has it, the one that adopts it, ttl, how long to keep the token, " <card>\n<owner>". The token;
# 0 if it is neither's. The adopter's own request may come twice.
ADOPT = Script(
    f"""
{_NAMES}
{_SETTLE}
local former, owner, ttl, keep, tail = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local holder = redis.call('GET', lock)
if holder == owner then
  local token, of = string.match(redis.call('GET', fence) or '', '^(%d+).-\\n(.*)$')
  if of == owner and tonumber(token) < {TOKEN_MOST} then
    if redis.call('PTTL', lock) < tonumber(ttl) then
      redis.call('PEXPIRE', lock, ttl)
    end
    return tonumber(token)
  end
elseif holder ~= former then
  return 0
end
return write(owner, ttl, keep, tail)
""",
    keys=4,
    arguments=5,
)

# ARGV: owner, the token of the lease that it has detached. That stays; whatever else the owner has is gone afterwards.
DISOWN = Script(
    f"""
{_NAMES}
{_SETTLE}
leave(ARGV[1])
local holder = redis.call('GET', lock)
if holder == ARGV[1] then
  if string.match(redis.call('GET', fence) or '', '^%d+') == ARGV[2] then
    return 1
  end
  redis.call('DEL', lock)
  holder = false
end
if not holder then
  hand_over()
end
return 1
""",
    keys=4,
    arguments=2,
)

INSPECT = Script(_NAMES + _LOOK + "return look()", keys=4, arguments=0)
