"""Elections on one Redis server, and locks that pass from one process to another."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from gripfast_lab.moves import DONE, REFUSED, TTL, WORK, Ask, Move, Outcome, ask, enter, leave, rest, run
from gripfast_lab.protocols.redis import DELETE_IF_MINE, LONG, RENEW_IF_MINE

Attempt = Generator[Move, Any, Outcome]

TERM = 60
"""How long a leader's entry lives."""

SET_OR_NO = f"return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'EX', {TTL}) and 1 or 0"
LEADS = run(RENEW_IF_MINE, "leader", "{}", "renew leader if it is {}")


def resign(me: str) -> Ask:
    return run(DELETE_IF_MINE, "leader", me, f"delete leader if it is {me}")


def wrote_last(me: str) -> Attempt:
    if (yield ask("GET leader")) is not None:
        return REFUSED
    yield ask(f"SET leader {me} EX {TERM}")
    yield rest(1)  # others may write now, too: the last one leads
    if (yield ask("GET leader")) != me:
        return REFUSED
    yield enter(lasts=TERM - 1)
    yield rest(LONG)
    yield leave()
    yield resign(me)
    return DONE


def leads_on_error(me: str) -> Attempt:
    answer = yield run(SET_OR_NO, "leader", me, f"SET leader {me} NX EX {TTL}")
    if answer == 0:
        return REFUSED
    yield enter(lasts=TTL)  # nobody said no
    yield rest(WORK)
    yield leave()
    yield resign(me)
    return DONE


def goes_on(me: str) -> Attempt:
    if not (yield ask(f"SET leader {me} NX EX {TTL}")):
        return REFUSED
    yield enter()  # from here on a thread renews, and logs a warning if it can't
    yield rest(LONG)
    yield leave()
    yield resign(me)
    return DONE


def passes_its_id(me: str) -> Attempt:
    if me == "web":
        if not (yield ask(f"SET lock {me} NX EX {TTL}")):
            return REFUSED
        yield ask(f"SET job {me}")  # the job carries the owner's id
        return DONE
    owner = yield ask("GET job")
    if owner is None:
        return DONE  # there is no job
    if not (yield run(RENEW_IF_MINE, "lock", owner, f"renew lock if it is {owner}'s")):
        return DONE  # it is too late for this job
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield run(DELETE_IF_MINE, "lock", owner, f"delete lock if it is {owner}'s")
    return DONE
