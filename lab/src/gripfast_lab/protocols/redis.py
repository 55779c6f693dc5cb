"""Locks on one Redis server, and on one that has replicas."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.moves import (
    DONE,
    REFUSED,
    TTL,
    WORK,
    Ask,
    Move,
    Outcome,
    ask,
    clock,
    elapsed,
    enter,
    leave,
    rest,
    run,
)

Attempt = Generator[Move, Any, Outcome]

LONG = 60
"""Work that takes longer than the lock lives, unless somebody renews it."""

DELETE_IF_MINE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"
RENEW_IF_MINE = f"""
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('EXPIRE', KEYS[1], {TTL}) end
return 0
"""
COUNT_UP = f"""
if redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
local count = redis.call('HINCRBY', KEYS[1], ARGV[1], 1)
redis.call('EXPIRE', KEYS[1], {TTL})
return count
"""
COUNT_DOWN = f"""
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
local count = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if count < 1 then redis.call('DEL', KEYS[1]) else redis.call('EXPIRE', KEYS[1], {TTL}) end
return count
"""


def delete_if_mine(me: str) -> Ask:
    return run(DELETE_IF_MINE, "lock", me, f"delete lock if it is {me}'s")


RENEWAL = run(RENEW_IF_MINE, "lock", "{}", "renew lock if it is {}'s")


def setnx_del(me: str) -> Attempt:
    if not (yield ask(f"SETNX lock {me}")):
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask("DEL lock")
    return DONE


def setnx_expire(me: str) -> Attempt:
    if not (yield ask(f"SETNX lock {me}")):
        return REFUSED
    yield ask(f"EXPIRE lock {TTL}")
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask("DEL lock")
    return DONE


def multi_exec(me: str) -> Attempt:
    was_set, _ = yield ask(f"SETNX lock {me}", f"EXPIRE lock {TTL}")
    if not was_set:
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask("DEL lock")
    return DONE


def getset(me: str) -> Attempt:
    mine = (yield clock()) + TTL
    if not (yield ask(f"SETNX lock {mine}")):
        ends_at = yield ask("GET lock")
        now = yield clock()
        if ends_at is None or int(ends_at) > now:
            return REFUSED
        mine = now + TTL
        if (yield ask(f"GETSET lock {mine}")) != ends_at:
            return REFUSED  # somebody else was faster
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    if (yield clock()) < mine:  # it is not over yet, so it is still ours
        yield ask("DEL lock")
    return DONE


def getset_by_value(me: str) -> Attempt:
    mine = (yield clock()) + TTL
    if not (yield ask(f"SETNX lock {mine}")):
        ends_at = yield ask("GET lock")
        now = yield clock()
        if ends_at is None or int(ends_at) > now:
            return REFUSED
        mine = now + TTL
        if (yield ask(f"GETSET lock {mine}")) != ends_at:
            return REFUSED  # somebody else was faster
    left = mine - (yield clock())
    if left <= 0:
        return REFUSED
    yield enter(lasts=left)
    yield rest(WORK)
    yield leave()
    yield run(DELETE_IF_MINE, "lock", str(mine), f"delete lock if it is {mine}")
    return DONE


def set_nx_ex_del(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield ask("DEL lock")
    return DONE


def get_compare_del(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    if (yield ask("GET lock")) == me:
        yield ask("DEL lock")
    return DONE


def compare_and_delete(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX PX {TTL * 1000}")):
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield delete_if_mine(me)
    return DONE


def with_watchdog(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX PX {TTL * 1000}")):
        return REFUSED
    yield enter()  # from here on a watchdog renews
    yield rest(LONG)
    yield leave()
    yield delete_if_mine(me)
    return DONE


def thread_local(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    count = 1
    yield enter(lasts=TTL)
    yield rest(WORK)
    if count:  # an inner block wants the same lock, and the counter says that we have it
        yield enter(lasts=WORK)
    yield rest(WORK)
    yield leave()
    yield delete_if_mine(me)
    return DONE


def hash_count(me: str) -> Attempt:
    if not (yield run(COUNT_UP, "lock", me, f"count {me} up")):
        return REFUSED
    yield enter()
    yield run(COUNT_UP, "lock", me, f"count {me} up")  # an inner block wants the same lock
    while (yield run(COUNT_DOWN, "lock", me, f"count {me} down")) is None:
        pass  # no answer: ask again
    yield rest(WORK)
    yield leave()
    yield run(COUNT_DOWN, "lock", me, f"count {me} down")
    return DONE


def on_primary(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield delete_if_mine(me)
    return DONE


def on_primary_with_wait(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    copies = yield ask("WAIT 1 0")  # until one replica has it
    left = TTL - (yield elapsed())
    if not copies or left <= 0:
        yield delete_if_mine(me)
        return REFUSED
    yield enter(lasts=left)
    yield rest(WORK)
    yield leave()
    yield delete_if_mine(me)
    return DONE
