"""Work that is to be done once, by whoever comes first, on one Redis server."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.moves import DONE, REFUSED, TTL, WORK, Move, Outcome, ask, clock, enter, finish, rest
from gripfast_lab.protocols.redis import delete_if_mine

Attempt = Generator[Move, Any, Outcome]

DUE = 60
"""The second at which the work is due, by each client's own clock."""


def flag_before(me: str) -> Attempt:
    if not (yield ask("SETNX done 1")):
        return DONE  # somebody else has done it
    yield enter()
    yield rest(WORK)
    yield finish()
    return DONE


def flag_after(me: str) -> Attempt:
    if (yield ask("GET done")):
        return DONE  # somebody else has done it
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield finish()
    yield ask("SET done 1")
    yield delete_if_mine(me)
    return DONE


def for_the_period(me: str) -> Attempt:
    now = yield clock()
    if now > DUE:
        return DONE  # it was due before
    if now < DUE:
        yield rest(DUE - now)
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return DONE  # somebody else does it, or has done it
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield finish()  # the lock stays until its time is over
    return DONE
