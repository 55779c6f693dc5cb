"""The search does not break everything: what is right holds, in the same worlds; and what is plainly wrong is seen."""

from collections.abc import Generator
from dataclasses import replace
from typing import Any

import pytest

from gripfast_lab.engines import database, ensemble
from gripfast_lab.engines.database import Database
from gripfast_lab.engines.ensemble import Ensemble
from gripfast_lab.engines.members import Members
from gripfast_lab.engines.redis import DOWN, EMPTY, Alone, Replicated, Several
from gripfast_lab.entries import BY_NAME, THREE
from gripfast_lab.model import Lab
from gripfast_lab.moves import DONE, REFUSED, RETRY, TTL, WORK, Move, Outcome, ask, ask_all, elapsed, enter, leave, rest
from gripfast_lab.protocols import etcd, redis, redlock, sessions
from gripfast_lab.world import CRASH, CUT, LOST_REPLY, MISS, PAUSE, SLOW, Protocol
from lab.searches import reachable, said_of, somebody_gets_in

Attempt = Generator[Move, Any, Outcome]

# What is right --------------------------------------------------------------------------------------------------------


def with_random_rest(me: str) -> Attempt:
    replies = yield ask_all(f"SET lock {me} NX EX {TTL}")
    if replies.count("OK") < 2:
        yield redlock.delete_everywhere(me)
        yield rest(1, 2, 3)
        return REFUSED
    yield enter(lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield redlock.delete_everywhere(me)
    return DONE


def with_an_end(me: str) -> Attempt:
    """A ZooKeeper holder that stops before its session can be over."""
    mine = yield ask(ensemble.CREATE)
    while True:
        there = yield ask(ensemble.CHILDREN)
        if mine not in there:
            return REFUSED
        before_me = [number for number in there if number < mine]
        if not before_me:
            break
        yield ask(ensemble.GONE.format(max(before_me)))
    yield enter(lasts=ensemble.TIME_OUT)
    yield rest(WORK)
    yield leave()
    yield ask(ensemble.DELETE.format(mine))
    return DONE


RIGHT = {
    "a timed holder that deletes what is its own": Protocol(
        redis.on_primary, Alone(), faults={CRASH: 1, SLOW: 1, PAUSE: 1}
    ),
    "the same, cut off": Protocol(redis.on_primary, Alone(), faults={CUT: 1, CRASH: 1}),
    "the same, and an answer is lost": Protocol(redis.on_primary, Alone(), faults={LOST_REPLY: 1, CRASH: 1}),
    "a watchdog and slow work": Protocol(redis.with_watchdog, Alone(), faults={SLOW: 1}, renewal=redis.RENEWAL),
    "a watchdog that dies": Protocol(redis.with_watchdog, Alone(), faults={CRASH: 1}, renewal=redis.RENEWAL),
    "time stamps and right clocks": Protocol(redis.getset, Alone(), tells_time=True),
    "a count, and no answer lost": Protocol(redis.hash_count, Alone(), faults={CRASH: 1}),
    "a primary that stays": Protocol(redis.on_primary, Replicated(1), faults={CRASH: 1, PAUSE: 1}),
    "Redlock, paused": Protocol(redlock.redlock, Several(3), faults={PAUSE: 1, CRASH: 1}, takes_time=True),
    "Redlock, and a node that is missed": Protocol(redlock.redlock, Several(3), faults={MISS: 1}, takes_time=True),
    "Redlock, and a node down": Protocol(
        redlock.redlock, Several(3, time_out=5), faults={"node down": 1}, takes_time=True
    ),
    "Redlock, and one restart": Protocol(redlock.redlock, Several(3), faults={"restart": 1}, takes_time=True),
    "Redlock, and one clock": Protocol(redlock.redlock, Several(3), faults={"clock": 1}, takes_time=True),
    "counters, and two clients": Protocol(redlock.with_counters, Several(3), faults={MISS: 1}, takes_time=True),
    "one by one, and one node down": Protocol(
        redlock.one_by_one, Several(5, time_out=5), ("A",), {"node down": 1}, takes_time=True
    ),
    "a table, and nobody dies": Protocol(sessions.table, Database(), THREE),
    "FOR UPDATE, and a client that dies": Protocol(sessions.for_update, Database(), THREE, {CRASH: 1}),
    "ZooKeeper, and a client that dies": Protocol(sessions.ephemeral_node, Ensemble(), faults={CRASH: 1}),
    "ZooKeeper, slow": Protocol(sessions.ephemeral_node, Ensemble(), faults={SLOW: 1}),
    "ZooKeeper, and a holder that knows its end": Protocol(with_an_end, Ensemble(), faults={PAUSE: 1, CRASH: 1}),
    "etcd: keep-alives, and no disk stalls": Protocol(etcd.keeps_alive, Members({"A": "m1"}), faults={PAUSE: 1}),
    "etcd: each renewal a new lease, at the leader": Protocol(
        etcd.moves_to_a_new_lease, Members({"A": "m1", "B": "m1"}), THREE, {"stalled disk": 1}
    ),
    "etcd: each renewal a new lease, at a follower": Protocol(
        etcd.moves_to_a_new_lease, Members(), THREE, {"stalled disk": 1, CUT: 1}
    ),
    "etcd: a waiter that looks at its own key": Protocol(
        etcd.looks_at_its_own_key, Members(kept=True), THREE, {PAUSE: 1, CRASH: 1}
    ),
}


@pytest.mark.parametrize("what", RIGHT)
def test_what_is_right_holds(what: str) -> None:
    assert said_of(RIGHT[what]) == ""


def test_a_random_rest_keeps_split_votes_from_being_for_ever() -> None:
    split = BY_NAME["redlock-split"].protocol()
    assert said_of(split).startswith("progress")
    assert said_of(replace(split, attempt=with_random_rest, clients=("A", "B"))) == ""


def test_a_rest_that_is_the_same_for_all_does_not() -> None:
    def with_equal_rest(me: str) -> Attempt:
        replies = yield ask_all(f"SET lock {me} NX EX {TTL}")
        if replies.count("OK") < 3:
            yield redlock.delete_everywhere(me)
            yield rest(2)
            return REFUSED
        yield enter(lasts=TTL)
        yield rest(WORK)
        yield leave()
        yield redlock.delete_everywhere(me)
        return DONE

    assert said_of(Protocol(with_equal_rest, Several(3), in_step=True)).startswith("progress")


# What is plainly wrong ------------------------------------------------------------------------------------------------


def without_asking(me: str) -> Attempt:
    yield enter()
    yield rest(WORK)
    yield leave()
    return DONE


def without_asking_after_a_rest(me: str) -> Attempt:
    yield rest(WORK)
    yield from without_asking(me)
    return DONE


def without_listening(me: str) -> Attempt:
    yield ask(f"SETNX lock {me}")
    yield from without_asking(me)
    return DONE


def without_giving_back(me: str) -> Attempt:
    if not (yield ask(f"SETNX lock {me}")):
        return REFUSED
    yield from without_asking(me)
    return DONE


def without_commit(me: str) -> Attempt:
    yield ask(database.SELECT)
    yield from without_asking(me)
    return DONE


def without_deleting_its_node(me: str) -> Attempt:
    mine = yield ask(ensemble.CREATE)
    while True:
        before_me = [number for number in (yield ask(ensemble.CHILDREN)) if number < mine]
        if not before_me:
            break
        yield ask(ensemble.GONE.format(max(before_me)))
    yield from without_asking(me)
    return DONE


def with_the_same_token(me: str) -> Attempt:
    if not (yield ask(f"SET lock {me} NX EX {TTL}")):
        return REFUSED
    yield enter(token=7, lasts=TTL)
    yield rest(WORK)
    yield leave()
    yield redis.delete_if_mine(me)
    return DONE


WRONG = {
    "enters without asking": ("exclusion", Protocol(without_asking, Alone())),
    "rests and enters without asking": ("exclusion", Protocol(without_asking_after_a_rest, Alone())),
    "does not listen": ("exclusion", Protocol(without_listening, Alone())),
    "never gives it back": ("progress", Protocol(without_giving_back, Alone())),
    "never commits": ("progress", Protocol(without_commit, Database())),
    "never deletes its node": ("progress", Protocol(without_deleting_its_node, Ensemble())),
    "has the same token for all": ("token", Protocol(with_the_same_token, Alone())),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_plainly_wrong_is_seen_without_any_fault(what: str) -> None:
    rule, protocol = WRONG[what]
    assert said_of(protocol).partition(":")[0] == rule


def test_a_hold_that_takes_no_time_could_not_be_seen_and_is_no_program() -> None:
    def in_and_out(me: str) -> Attempt:
        if not (yield ask(f"SET lock {me} NX EX {TTL}")):
            return REFUSED
        yield enter()
        yield leave()
        return DONE

    with pytest.raises(ValueError, match="let it rest"):
        said_of(Protocol(in_and_out, Alone()))


def test_hope_that_needs_another_fault_is_none() -> None:
    def only_if_a_node_is_missed(me: str) -> Attempt:
        if None not in (yield ask_all("SET lock A")):
            return REFUSED
        yield from without_asking(me)
        return DONE

    protocol = Protocol(only_if_a_node_is_missed, Several(3), ("A",), {MISS: 1})
    assert said_of(protocol).startswith("progress")


@pytest.mark.parametrize("fault", [CRASH, PAUSE])
def test_who_is_dead_or_paused_does_nothing_nor_does_its_watchdog(fault: str) -> None:
    lab = Lab("watched", Protocol(redis.with_watchdog, Alone(), faults={fault: 1}, renewal=redis.RENEWAL))
    (start,) = lab.starts()
    seen = 0
    for before, (act, _) in reachable(lab, start):
        clients = dict(zip(lab.protocol.clients, before.clients, strict=True))
        still = {who for who, client in clients.items() if client.is_dead or client.is_paused}
        seen += bool(still)
        assert act.who not in still
    assert seen


# What programs see ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("down", [(0, 1), (0, 4), (2, 3), (3, 4)])
def test_any_two_nodes_that_are_down_cost_more_than_the_lock_lives(down: tuple[int, int]) -> None:
    lab = Lab("one by one", Protocol(redlock.one_by_one, Several(5, time_out=5), ("A",), takes_time=True))
    (start,) = lab.starts()
    down_there = start._replace(engine=tuple(DOWN if place in down else EMPTY for place in range(5)))
    assert somebody_gets_in(lab, start)
    assert not somebody_gets_in(lab, down_there)


def test_a_program_is_told_how_long_its_requests_took() -> None:
    seen = set()

    def looks(me: str) -> Attempt:
        yield ask("SET lock A", at="n1")
        seen.add((yield elapsed()))
        return DONE

    lab = Lab("looks", Protocol(looks, Several(1, time_out=5), ("A",), takes_time=True))
    (start,) = lab.starts()
    somebody_gets_in(lab, start._replace(engine=(DOWN,)))
    assert seen == {5}


def test_of_several_rests_each_can_happen() -> None:
    """Otherwise luck would be on the side of the protocol."""
    rested = set()

    def rests(me: str) -> Attempt:
        yield ask("SET lock A")
        yield rest(RETRY, 2 * RETRY)
        rested.add((yield elapsed()))
        return DONE

    lab = Lab("rests", Protocol(rests, Alone(), ("A",), takes_time=True))
    (start,) = lab.starts()
    somebody_gets_in(lab, start)
    assert rested == {RETRY, 2 * RETRY}
