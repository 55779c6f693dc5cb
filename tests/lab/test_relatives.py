"""Semaphores, read/write locks, elections and run-once in the lab: what is right holds, and each rule sees what it is
about."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from gripfast_lab.engines.redis import Alone
from gripfast_lab.entries import BY_NAME
from gripfast_lab.model import Lab
from gripfast_lab.moves import (
    DONE,
    REFUSED,
    RETRY,
    TTL,
    WORK,
    Move,
    Outcome,
    ask,
    elapsed,
    enter,
    finish,
    insist,
    leave,
    record,
    rest,
    run,
)
from gripfast_lab.own import RELATIVES
from gripfast_lab.protocols import leaders, permits, rules
from gripfast_lab.world import CRASH, CUT, JOB, LEAD, LOST_REPLY, PAUSE, PERMIT, SLOW, Protocol, Work
from lab.searches import reachable, said_of

Attempt = Generator[Move, Any, Outcome]

THREE = ("A", "B", "C")
LIMIT = permits.LIMIT

# What is right --------------------------------------------------------------------------------------------------------

WRITE_NEXT = permits.WRITE.replace("return 0 end", f"redis.call('SET', 'wanted', 1, 'EX', {TTL}) return 0 end", 1)
READ_AFTER = permits.READ.replace("'EXISTS', 'writer') == 1", "'EXISTS', 'writer', 'wanted') > 0")


def writer_is_next(me: str) -> Attempt:
    """As in `readers_first`, but a writer that waits keeps new readers out."""
    if me == "writer":
        if not (yield run(WRITE_NEXT, "writer", me, "write, or want to")):
            return REFUSED
        yield enter(lasts=TTL, n=LIMIT)
        yield rest(WORK)
        yield leave()
        yield ask("DEL writer wanted")
        return DONE
    if not (yield run(READ_AFTER, "reader", me, "read, if nobody wants to write")):
        return REFUSED
    yield enter(lasts=permits.READ_TTL)
    yield rest(permits.READING)
    yield leave()
    yield ask(f"DEL reader:{me}")
    return DONE


def looks_inside(me: str) -> Attempt:
    """As in `flag_after`, but the flag is looked at under the lock."""
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    if not (yield ask("GET done")):
        yield enter(lasts=TTL)
        yield rest(WORK)
        yield finish()
        yield ask("SET done 1")
    yield ask("DEL lock")
    return DONE


def stops_at_its_end(me: str) -> Attempt:
    """As in `goes_on`, but the leader knows when its lock is over."""
    if not (yield ask(f"SET leader {me} NX EX {TTL}")):
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield leaders.resign(me)
    return DONE


ROLES = ("reader1", "reader2", "writer")
RIGHT = {
    "a counter, and nobody dies": Protocol(permits.counter, Alone(), THREE, words=PERMIT, limit=LIMIT),
    "one ttl, and nobody is slow": Protocol(permits.one_ttl, Alone(), THREE, words=PERMIT, limit=LIMIT),
    "readers counted, and nobody dies": Protocol(
        permits.readers_counted, Alone(), ("reader", "writer"), limit=LIMIT, has_roles=True
    ),
    "a reader that dies has a ttl": Protocol(
        permits.readers_first, Alone(), ROLES, {CRASH: 1}, limit=LIMIT, has_roles=True
    ),
    "a writer that is next": Protocol(
        writer_is_next, Alone(), ROLES, limit=LIMIT, has_roles=True, comes_back=permits.READING // 2
    ),
    "who wrote last, and nobody is slow": Protocol(leaders.wrote_last, Alone(), words=LEAD),
    "a leader that stops": Protocol(stops_at_its_end, Alone(), faults={CUT: 1, PAUSE: 1}, words=LEAD),
    "a flag that is looked at under the lock": Protocol(looks_inside, Alone(), THREE, words=JOB, is_once=True),
    "right clocks": replace(BY_NAME["once-for-the-period"].protocol(), faults={}),
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_holds(what: str) -> None:
    assert said_of(RIGHT[what]) == ""


@pytest.mark.parametrize("name", RELATIVES)
def test_the_rules_of_gripfast_hold_in_every_world_with_two_faults(name: str) -> None:
    faults = (CRASH, SLOW, PAUSE, LOST_REPLY)
    for place, one in enumerate(faults):
        for other in faults[place:]:
            assert said_of(replace(RELATIVES[name](), faults={one: 1, other: 1})) == "", (one, other)


PLANTED = {
    "a retry that does not renew": (
        "semaphore", "TAKE_SLOT", f"    redis.call('EXPIRE', KEYS[1] .. slot, {TTL})\n", "", "limit"
    ),
    "a permit without expiry": ("semaphore", "TAKE_SLOT", f", 'EX', {TTL})", ")", "permit"),
    "an adopter that does not look": ("hand-over", "ADOPT", "owner ~= 'web'", "false", "exclusion"),
    "a lock without expiry": ("once", "TAKE_OR_TELL", f", 'EX', {TTL})", ")", "never"),
    "a record that nobody reads": ("once", "RECORD", "'SET', KEYS[1], done", "'DEL', KEYS[1]", "again"),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_the_search_sees_what_is_missing_in_a_rule(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, script, text, instead, rule = PLANTED[what]
    before = getattr(rules, script)
    assert text in before
    monkeypatch.setattr(rules, script, before.replace(text, instead))
    assert said_of(RELATIVES[name]()).partition(":")[0] == rule


# What the rules are about ---------------------------------------------------------------------------------------------


def without_asking(me: str) -> Attempt:
    yield enter()
    yield rest(WORK)
    yield leave()
    return DONE


def with_two(me: str) -> Attempt:
    yield enter(n=2)
    yield rest(WORK)
    yield leave()
    return DONE


def without_giving_back(me: str) -> Attempt:
    if (yield ask("INCR count")) > LIMIT:
        yield ask("DECR count")
        return REFUSED
    yield from without_asking(me)
    return DONE


def does_it_anyway(me: str) -> Attempt:
    yield enter()
    yield rest(WORK)
    yield finish()
    return DONE


def gives_up(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    yield enter()
    yield rest(WORK)
    yield leave()
    return DONE


WRONG = {
    "three of two permits": ("limit", Protocol(without_asking, Alone(), THREE, limit=2)),
    "one with two of three permits, and another": ("exclusion", Protocol(with_two, Alone(), limit=3)),
    "permits that nobody gives back": ("progress", Protocol(without_giving_back, Alone(), THREE, limit=LIMIT)),
    "two at the same work": ("exclusion", Protocol(does_it_anyway, Alone(), is_once=True)),
    "work that is left": ("never", Protocol(gives_up, Alone(), is_once=True)),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_plainly_wrong_is_seen_without_any_fault(what: str) -> None:
    rule, protocol = WRONG[what]
    assert said_of(protocol).partition(":")[0] == rule


@pytest.mark.parametrize("limit", [2, 3])
def test_as_many_as_there_are_permits_is_not_too_many(limit: int) -> None:
    assert said_of(Protocol(without_asking, Alone(), THREE[:limit], limit=limit)) == ""
    assert said_of(Protocol(without_asking, Alone(), (*THREE, "D")[: limit + 1], limit=limit)).startswith("limit: A, B")


def test_two_permits_that_are_lost_leave_none() -> None:
    """With one crash a permit is lost, with two all of them."""
    protocol = BY_NAME["semaphore-counter"].protocol()
    lab = Lab("two", replace(protocol, faults={CRASH: 2}))
    seen = {what for _, (_, after) in reachable(lab, next(lab.starts())) if (what := lab.wrong(after))}
    assert {what.partition(":")[0] for what in seen} == {"permit", "progress"}


# Moves ----------------------------------------------------------------------------------------------------------------


def test_who_insists_is_asked_again_from_where_it_was() -> None:
    waited = []

    def insists(me: str) -> Attempt:
        if me == "B":
            yield ask("SET lock B EX 30")
            return DONE
        yield rest(1)
        yield insist(ask("SET lock A NX"))
        waited.append((yield elapsed()))
        yield enter()
        yield rest(WORK)
        yield leave()
        return DONE

    lab = Lab("insists", Protocol(insists, Alone(), ("A", "B"), takes_time=True, has_roles=True))
    assert any(after.clients[0].holds for _, (_, after) in reachable(lab, next(lab.starts())))
    assert set(waited) <= {1} | {RETRY * times for times in range(1, 4)}
    assert any(client.was_refused for _, (_, after) in reachable(lab, next(lab.starts())) for client in after.clients)


def test_what_is_recorded_is_done_even_if_the_answer_is_lost() -> None:
    def records(me: str) -> Attempt:
        yield record(ask("SET done 1"))
        return DONE

    lab = Lab("records", Protocol(records, Alone(), ("A",), {LOST_REPLY: 1}, is_once=True))
    steps = [(act, after) for _, (act, after) in reachable(lab, next(lab.starts()))]
    assert {act.kind for act, _ in steps} >= {"asks", "asks in vain"}
    assert all(after.work is Work.DONE for _, after in steps)


def test_what_a_refused_record_says_is_not_done() -> None:
    def records(me: str) -> Attempt:
        yield record(ask("SETNX done 1"))
        return DONE

    lab = Lab("records", Protocol(records, Alone(), ("A",), is_once=True))
    start = next(lab.starts())
    answer = lab.protocol.engine.ask(start.engine, "A", ask("SETNX done 2"))
    assert answer is not None
    ((_, after),) = lab.steps(start._replace(engine=answer.state))
    assert after.work is Work.OPEN


def test_names_matter_only_where_clients_have_roles() -> None:
    def only_b(me: str) -> Attempt:
        if me == "A":
            return DONE
        yield from without_asking(me)
        return DONE

    for has_roles in (False, True):
        lab = Lab("roles", Protocol(only_b, Alone(), has_roles=has_roles))
        first = [act.who for act, _ in lab.steps(next(lab.starts()))]
        assert first == (["A", "B"] if has_roles else ["A"])
