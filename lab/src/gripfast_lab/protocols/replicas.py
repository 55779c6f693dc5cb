"""Locks on a Redis server with replicas that try not to be lost in a failover."""

from __future__ import annotations

from gripfast_lab.moves import DONE, REFUSED, TTL, WORK, ask, elapsed, enter, leave, rest, run
from gripfast_lab.protocols.redis import LONG, Attempt, delete_if_mine

COUNT_CONNECTED = """
return tonumber(string.match(redis.call('INFO', 'replication'), 'connected_slaves:(%d+)'))
"""
RUN_ID = "string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')"
BOTH_IDS = f"{RUN_ID} .. string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')"


def first(identity: str) -> str:
    """The server is told that it has no predecessor."""
    return f"redis.call('SET', 'marker', {identity}) return 1"


def claim_after_grace(identity: str) -> str:
    """The lock, unless the server has been this one for less than a ttl."""
    return f"""
local this = {identity}
if redis.call('GET', 'marker') ~= this then
  redis.call('SET', 'marker', this)
  redis.call('SET', 'grace', this, 'EX', {TTL})
end
if redis.call('EXISTS', 'grace') == 1 or redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'EX', {TTL})
return 1
"""


def waits_for_connected(me: str) -> Attempt:
    connected = yield run(COUNT_CONNECTED, "lock", me, "how many replicas are connected?")
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    copies = yield ask(f"WAIT {connected} 1000")  # until all of them have it
    left = TTL - (yield elapsed())
    if copies is None or copies < connected or left <= 0:
        yield delete_if_mine(me)
        return REFUSED
    yield enter(lasts=left)
    yield rest(WORK)
    yield leave()
    yield delete_if_mine(me)
    return DONE


def grace_by_run_id(me: str) -> Attempt:
    if not (yield run(claim_after_grace(RUN_ID), "lock", me, f"set lock to {me} after the grace of this run id")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield delete_if_mine(me)
    return DONE


def grace_alone(me: str) -> Attempt:
    if not (yield run(claim_after_grace(BOTH_IDS), "lock", me, f"set lock to {me} after the grace")):
        return REFUSED
    yield enter()  # from here on a watchdog renews
    yield rest(LONG)
    yield leave()
    yield delete_if_mine(me)
    return DONE
