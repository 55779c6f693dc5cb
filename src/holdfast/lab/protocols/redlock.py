"""Redlock: the same lock on several Redis nodes, held by who has most of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from holdfast.lab.moves import ALL, DONE, REFUSED, TTL, WORK, Ask, Move, Outcome, ask, ask_all, elapsed, enter, leave
from holdfast.lab.moves import rest as rest
from holdfast.lab.moves import run as run
from holdfast.lab.protocols.redis import DELETE_IF_MINE

Attempt = Generator[Move, Any, Outcome]

MAJORITY = 2
FIVE = ("n1", "n2", "n3", "n4", "n5")
SHORT_TTL = 10

SET_AND_COUNT = f"""
if not redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', {TTL}) then return 0 end
return redis.call('INCR', 'count')
"""


def delete_everywhere(me: str) -> Ask:
    return run(DELETE_IF_MINE, "lock", me, f"delete lock if it is {me}'s", at=ALL)


def redlock(me: str) -> Attempt:
    replies = yield ask_all(f"SET lock {me} NX EX {TTL}")
    if replies.count("OK") < MAJORITY:
        yield delete_everywhere(me)
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE


def without_looking_again(me: str) -> Attempt:
    replies = yield ask_all(f"SET lock {me} NX EX {TTL}")
    if replies.count("OK") < MAJORITY:
        yield delete_everywhere(me)
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE


def one_by_one(me: str) -> Attempt:
    votes = 0
    for node in FIVE:
        votes += (yield ask(f"SET lock {me} NX EX {SHORT_TTL}", at=node)) == "OK"
    if votes < 3 or (yield elapsed()) >= SHORT_TTL:
        yield delete_everywhere(me)
        return REFUSED
    yield enter(lasts=SHORT_TTL)
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE


def with_counters(me: str) -> Attempt:
    counts = yield run(SET_AND_COUNT, "lock", me, f"SET lock {me} NX EX {TTL}; count", at=ALL)
    votes = [count for count in counts if count]
    if len(votes) < MAJORITY:
        yield delete_everywhere(me)
        return REFUSED
    yield enter(token=max(votes), lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield delete_everywhere(me)
    return DONE
