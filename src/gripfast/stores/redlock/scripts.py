"""What happens on one node, in Lua 5.1. Renewals, reasons and looks are those of a single Redis server.

    KEYS   lock     the lock itself: a plain string, "<owner>.<attempt>", with PX
           fence    "<token>@<since> <card>\n<owner>.<attempt>": F, the largest token accepted, and who wrote it
           line     sorted set, waiting owners by the moment at which they came
           places   hash, waiting owner → the channel on which it listens; "-<channel>" once notified, until it retries
           broken   what was force-released last
           note     "<owner>.<attempt>\n<text>": what its holder is to be told, if the operator gave a reason
           birth    one per node: the moment at which it came back without its memory; 0 if it was there from the start

`core/redlock/fence.py` has the rule and its argument. An absent F reads as the node's time less a day: no older one is
kept. A node never accepts a proposal of more than a day ahead, so that one wild clock can't spoil a name; what follows
from an F that was accepted has no such bound. Moments and ttls are milliseconds, tokens and `since` microseconds of the
node's clock.

The client that has released a majority notifies waiters: only then a retry can succeed. Failed attempts notify nobody.
"""

from __future__ import annotations

from gripfast.core import rules
from gripfast.stores.redis.scripts import WINDOW_MS, Script

DAY_US = rules.TOKEN_MEMORY_US
INITIAL_MS = 1000
"""For how long after a node was seen without a marker it may be told that the cluster is new."""

_NOW = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
"""

_ACCEPT = f"""
local function accepted(token, most)
  local last = redis.call('GET', fence)
  local before = last and tonumber(string.match(last, '^%d+')) or now - {DAY_US}
  if token > most or token < before or token == before and string.match(last or '', '\\n(.*)$') ~= value then
    if not last then -- what is told now must be what the second round finds
      redis.call('SET', fence, string.format('%.0f@%.0f%s', before, now, tail), 'PX', keep)
    end
    return string.format('%.0f', before)
  end
  local kept = keep + math.max(0, math.ceil((token - now) / 1000))
  redis.call('SET', fence, string.format('%.0f@%.0f%s', token, now, tail), 'PX', string.format('%.0f', kept))
  return 1
end
"""

# ARGV: value, owner and dot, ttl, how long to keep the token, " <card>\n<value>", proposal, grace (0: no birth marker
# is needed), channel ("" to stay out of the line).
# 1 if it is locked and the proposal accepted, F if it is only locked; otherwise a list: the node's time if it has no
# marker, that and how long it will not vote if it is too young, who has the lock if it is taken.
VOTE = Script(
    f"""
local lock, fence, line, places, birth = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local value, mine, ttl, keep, tail, grace, channel = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7], ARGV[8]
{_NOW}
if grace ~= '0' then
  local born, ms = redis.call('GET', birth), math.floor(now / 1000)
  if not born then
    return {{ms}}
  end
  if tonumber(born) > ms then -- its clock was put back since
    redis.call('SET', birth, string.format('%.0f', ms))
    born = ms
  end
  if born + grace > ms then
    return {{ms, born + grace - ms}}
  end
end
if not redis.call('SET', lock, value, 'NX', 'PX', ttl) then
  local holder = redis.call('GET', lock)
  local is_mine = string.sub(holder, 1, #mine) == mine
  if not is_mine or tonumber(string.sub(holder, #mine + 1)) > tonumber(string.sub(value, #mine + 1)) then
    if channel ~= '' then
      local owner = string.sub(mine, 1, -2)
      redis.call('ZADD', line, 'NX', string.format('%.0f', now), owner)
      redis.call('HSET', places, owner, channel)
      redis.call('PEXPIRE', line, {WINDOW_MS})
      redis.call('PEXPIRE', places, {WINDOW_MS})
    end
    return {{holder, redis.call('PTTL', lock), redis.call('GET', fence), redis.call('ZCARD', line)}}
  end
  redis.call('SET', lock, value, 'PX', math.max(tonumber(ttl), redis.call('PTTL', lock))) -- it may be a late copy
end
if channel ~= '' then
  local owner = string.sub(mine, 1, -2)
  redis.call('ZREM', line, owner)
  redis.call('HDEL', places, owner)
end
{_ACCEPT}
return accepted(tonumber(ARGV[6]), now + {DAY_US})
""",
    keys=5,
    arguments=8,
)

# ARGV: value, how long to keep the token, " <card>\n<value>", token. 1 if it is accepted, F if not; 0 if the lock is
# not this attempt's any more.
ACCEPT = Script(
    f"""
local lock, fence = KEYS[1], KEYS[2]
local value, keep, tail = ARGV[1], ARGV[2], ARGV[3]
if redis.call('GET', lock) ~= value then
  return 0
end
{_NOW}
{_ACCEPT}
return accepted(tonumber(ARGV[4]), math.huge)
""",
    keys=2,
    arguments=4,
)

# ARGV: value, ttl, how long to keep the token, " <card>\n<value>", token, grace. 1 if it is this attempt's again. Not
# at a node that is too young to vote: somebody may count on a vote that it has forgotten.
TAKE_BACK = Script(
    f"""
local lock, fence, birth = KEYS[1], KEYS[2], KEYS[3]
local value, ttl, keep, tail, token, grace = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
{_NOW}
local born, ms = redis.call('GET', birth), math.floor(now / 1000)
if grace ~= '0' then
  if not born then
    redis.call('SET', birth, string.format('%.0f', ms))
  end
  if not born or born + grace > ms then
    return 0
  end
end
if redis.call('EXISTS', lock) == 1 then
  return 0
end
local last = redis.call('GET', fence)
-- One that was born less than a day ago has forgotten nothing that it has accepted since.
local is_young = born and ms - born < {DAY_US // 1000}
local before = last and tonumber(string.match(last, '^%d+')) or is_young and 0 or now - {DAY_US}
if before > token then
  return 0
end
redis.call('SET', lock, value, 'PX', ttl)
local kept = keep + math.max(0, math.ceil((token - now) / 1000))
redis.call('SET', fence, string.format('%.0f@%.0f%s', token, now, tail), 'PX', string.format('%.0f', kept))
return 1
""",
    keys=3,
    arguments=6,
)

# ARGV: value. 1 if this attempt had it. Its owner stays queued.
UNLOCK = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1
""",
    keys=1,
    arguments=1,
)

# ARGV: owner and dot. Whatever it has is gone afterwards. 1 if it had the lock, and 2 more if it is free now and
# somebody waits for it.
FREE = Script(
    """
local lock, line, places, mine = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local holder, told = redis.call('GET', lock), 0
if holder and string.sub(holder, 1, #mine) == mine then
  redis.call('DEL', lock)
  holder = false
  told = 1
end
if redis.call('EXISTS', line) == 1 then
  local owner = string.sub(mine, 1, -2)
  redis.call('ZREM', line, owner)
  redis.call('HDEL', places, owner)
  if not holder and redis.call('EXISTS', line) == 1 then
    told = told + 2
  end
end
return told
""",
    keys=3,
    arguments=1,
)

# 1 if somebody was told. Whoever was told and has not come may be stopped: the next one is told then.
WAKE = Script(
    """
local line, places = KEYS[1], KEYS[2]
for _, owner in ipairs(redis.call('ZRANGE', line, 0, -1)) do
  local channel = redis.call('HGET', places, owner)
  if not channel or string.sub(channel, 1, 1) ~= '-' then
    if channel and redis.call('PUBLISH', channel, owner .. ' 0 0') > 0 then
      redis.call('HSET', places, owner, '-' .. channel)
      return 1
    end
    redis.call('ZREM', line, owner)
    redis.call('HDEL', places, owner)
  end
end
return 0
""",
    keys=2,
    arguments=0,
)

# ARGV: what the holder is to be told; "" for nothing. 1 if someone had it, and 2 more if somebody waits.
FORCE_RELEASE = Script(
    """
local lock, line, broken, note = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local holder, left = redis.call('GET', lock), redis.call('PTTL', lock)
if holder then
  redis.call('DEL', lock) -- first: a server without memory left allows this, and then the rest
  if left > 0 then
    redis.call('SET', broken, holder, 'PX', left)
    if ARGV[1] ~= '' then
      redis.call('SET', note, holder .. '\\n' .. ARGV[1], 'PX', left)
    end
  end
end
return (holder and 1 or 0) + 2 * redis.call('EXISTS', line)
""",
    keys=4,
    arguments=1,
)

# It has come back without its memory, just now.
MARK = Script(
    f"""
{_NOW}
return redis.call('SET', KEYS[1], string.format('%.0f', math.floor(now / 1000)), 'NX') and 1 or 0
""",
    keys=1,
    arguments=0,
)

# ARGV: when it was seen without a marker, by its own clock. 1 if it votes from now on.
ESTABLISH = Script(
    f"""
{_NOW}
if now / 1000 - ARGV[1] > {INITIAL_MS} then
  return 0
end
redis.call('SET', KEYS[1], '0')
return 1
""",
    keys=1,
    arguments=1,
)
