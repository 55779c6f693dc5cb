"""Locks on etcd. Each holder is careful: it stops by itself when the time is over that it was granted last."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.engines.members import DELETE, GONE, JOIN, KEEP_ALIVE, KEYS, MOVE, READ, RELEASE, TAKE, YES
from gripfast_lab.moves import DONE, REFUSED, TTL, WORK, Move, Outcome, ask, enter, leave, rest

Attempt = Generator[Move, Any, Outcome]

RENEWED = 20
"""Seconds after which a holder renews."""


def keeps_alive(me: str) -> Attempt:
    if (yield ask(TAKE)) != YES:
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(RENEWED)
    if (yield ask(KEEP_ALIVE)) == YES:
        yield enter(lasts=TTL)  # from now on
    yield rest(RENEWED)
    yield leave()
    yield ask(RELEASE)
    return DONE


def keeps_alive_and_reads(me: str) -> Attempt:
    if (yield ask(TAKE)) != YES:
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(RENEWED)
    if (yield ask(KEEP_ALIVE)) == YES and (yield ask(READ)) == YES:
        yield enter(lasts=TTL)  # from now on
    yield rest(RENEWED)
    yield leave()
    yield ask(RELEASE)
    return DONE


def moves_to_a_new_lease(me: str) -> Attempt:
    """Gripfast's rule."""
    if (yield ask(TAKE)) != YES:
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(RENEWED)
    if (yield ask(MOVE)) == YES:
        yield enter(lasts=TTL)
    yield rest(RENEWED)
    yield leave()
    yield ask(RELEASE)
    return DONE


def looks_before_it_alone(me: str) -> Attempt:
    mine = yield ask(JOIN)
    while True:
        there = yield ask(KEYS)
        before_me = [number for number in there if number < mine]
        if not before_me:
            break
        yield ask(GONE.format(max(before_me)))
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield ask(DELETE.format(mine))
    return DONE


def looks_at_its_own_key(me: str) -> Attempt:
    """Gripfast's rule."""
    mine = yield ask(JOIN)
    while True:
        there = yield ask(KEYS)
        if mine not in there:
            return REFUSED
        before_me = [number for number in there if number < mine]
        if not before_me:
            break
        yield ask(GONE.format(max(before_me)))
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield ask(DELETE.format(mine))
    return DONE
