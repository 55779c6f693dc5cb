"""Semaphores and read/write locks on one Redis server."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.moves import (
    DONE,
    REFUSED,
    TTL,
    WORK,
    Move,
    Outcome,
    ask,
    clock,
    enter,
    insist,
    leave,
    rest,
    run,
)

Attempt = Generator[Move, Any, Outcome]

LIMIT = 2
"""Permits of the semaphore; a writer takes as many, and a reader one."""

READING, READ_TTL = 60, 90

TAKE_UNDER_LIMIT = f"""
if tonumber(redis.call('GET', KEYS[1]) or 0) >= {LIMIT} then return 0 end
local count = redis.call('INCR', KEYS[1])
if count == 1 then redis.call('EXPIRE', KEYS[1], {TTL}) end
return count
"""
ADD_READER = """
if redis.call('EXISTS', 'writer') == 1 then return 0 end
return redis.call('INCR', KEYS[1])
"""
SET_WRITER = f"""
if tonumber(redis.call('GET', KEYS[1]) or 0) > 0 then return 0 end
return redis.call('SET', 'writer', ARGV[1], 'NX', 'EX', {TTL}) and 1 or 0
"""
READ = f"""
if redis.call('EXISTS', 'writer') == 1 then return 0 end
redis.call('SET', 'reader:' .. ARGV[1], 1, 'EX', {READ_TTL})
return 1
"""
WRITE = f"""
if #redis.call('KEYS', 'reader:*') > 0 then return 0 end
return redis.call('SET', 'writer', ARGV[1], 'NX', 'EX', {TTL}) and 1 or 0
"""
UPGRADE = f"""
if #redis.call('KEYS', 'reader:*') > redis.call('EXISTS', 'reader:' .. ARGV[1]) then return 0 end
return redis.call('SET', 'writer', ARGV[1], 'NX', 'EX', {TTL}) and 1 or 0
"""
RENEW_READER = run(f"return redis.call('EXPIRE', KEYS[1], {READ_TTL})", "reader:{}", "", "renew reader:{}")


def counter(me: str) -> Attempt:
    if (yield ask("INCR count")) > LIMIT:
        yield ask("DECR count")
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask("DECR count")
    return DONE


def refilled(me: str) -> Attempt:
    yield ask(f"SET free {LIMIT}")  # a program that starts says how many permits there are
    if (yield ask("DECR free")) < 0:
        yield ask("INCR free")
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask("INCR free")
    return DONE


def count_then_add(me: str) -> Attempt:
    if (yield ask("HLEN holders")) >= LIMIT:
        return REFUSED
    yield ask(f"HSET holders {me} 1")
    yield enter()
    yield rest(WORK)
    yield leave()
    yield ask(f"HDEL holders {me}")
    return DONE


def one_ttl(me: str) -> Attempt:
    if not (yield run(TAKE_UNDER_LIMIT, "count", "", f"INCR count if it is below {LIMIT}; if it is 1: EXPIRE {TTL}")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield ask("DECR count")
    return DONE


def by_clocks(me: str) -> Attempt:
    now = yield clock()
    _, _, place = yield ask(
        f"ZREMRANGEBYSCORE holders -inf {now - TTL}",  # whose time is over
        f"ZADD holders {now} {me}",
        f"ZRANK holders {me}",
    )
    if place >= LIMIT:
        yield ask(f"ZREM holders {me}")
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield ask(f"ZREM holders {me}")
    return DONE


def readers_counted(me: str) -> Attempt:
    if me == "reader":
        if not (yield run(ADD_READER, "readers", me, "INCR readers, if nobody writes")):
            return REFUSED
        yield enter()
        yield rest(WORK)
        yield leave()
        yield ask("DECR readers")
        return DONE
    if not (yield run(SET_WRITER, "readers", me, f"SET writer NX EX {TTL}, if readers is 0")):
        return REFUSED
    yield enter(lasts=TTL, n=LIMIT)
    yield rest(WORK)
    yield leave()
    yield ask("DEL writer")
    return DONE


def upgraded(me: str) -> Attempt:
    if not (yield run(READ, "reader", me, f"SET reader:{me} EX {READ_TTL}, if nobody writes")):
        return REFUSED
    yield enter()  # from here on a watchdog renews
    yield rest(WORK)
    yield insist(run(UPGRADE, "writer", me, f"SET writer NX EX {TTL}, if nobody else reads"))
    yield enter(n=LIMIT)
    yield rest(WORK)
    yield leave()
    yield ask(f"DEL writer reader:{me}")
    return DONE


def readers_first(me: str) -> Attempt:
    if me == "writer":
        if not (yield run(WRITE, "writer", me, f"SET writer NX EX {TTL}, if nobody reads")):
            return REFUSED
        yield enter(lasts=TTL, n=LIMIT)
        yield rest(WORK)
        yield leave()
        yield ask("DEL writer")
        return DONE
    if not (yield run(READ, "reader", me, f"SET reader:{me} EX {READ_TTL}, if nobody writes")):
        return REFUSED
    yield enter(lasts=READ_TTL)
    yield rest(READING)
    yield leave()
    yield ask(f"DEL reader:{me}")
    return DONE
