"""Redlock: the same lock on several Redis nodes, held by who has most of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.moves import (
    ALL,
    DONE,
    REFUSED,
    TTL,
    WORK,
    Ask,
    Move,
    Outcome,
    ask,
    ask_all,
    elapsed,
    enter,
    leave,
    rest,
    run,
)
from gripfast_lab.protocols.redis import DELETE_IF_MINE

Attempt = Generator[Move, Any, Outcome]

FIVE = ("n1", "n2", "n3", "n4", "n5")
SHORT_TTL = 10

SET_AND_COUNT = f"""
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', {TTL}) then return 0 end
return redis.call('INCR', 'count')
"""


def delete_everywhere(me: str) -> Ask:
    return run(DELETE_IF_MINE, "lock", me, f"delete lock if it is {me}'s", at=ALL)


def one_by_one(me: str) -> Attempt:
    votes = 0
    for node in FIVE:
        votes += (yield ask(f"SET lock {me} NX EX {SHORT_TTL}", at=node)) == "OK"
    left = SHORT_TTL - (yield elapsed())
    if votes < 3 or left <= 0:
        yield delete_everywhere(me)
        return REFUSED
    yield enter(lasts=left)
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE


def redlock(me: str) -> Attempt:
    replies = yield ask_all(f"SET lock {me} NX EX {TTL}")
    left = TTL - (yield elapsed())
    if replies.count("OK") <= len(replies) / 2 or left <= 0:
        yield delete_everywhere(me)
        return REFUSED
    yield enter(lasts=left)
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE


def looked_before(me: str) -> Attempt:
    replies = yield ask_all(f"SET lock {me} NX EX {TTL}")
    left = TTL - (yield elapsed())
    if replies.count("OK") <= len(replies) / 2 or left <= 0:
        yield delete_everywhere(me)
        return REFUSED
    yield enter()  # there is time left, so it works
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE


def with_counters(me: str) -> Attempt:
    counts = yield run(SET_AND_COUNT, "lock", me, f"SET lock {me} NX EX {TTL}; count", at=ALL)
    votes = [count for count in counts if count]
    left = TTL - (yield elapsed())
    if len(votes) <= len(counts) / 2 or left <= 0:
        yield delete_everywhere(me)
        return REFUSED
    yield enter(token=max(votes), lasts=left)
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE
