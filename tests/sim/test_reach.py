"""The checkers where there are several nodes: a fault at a few of them excuses nothing."""

from __future__ import annotations

import math

import pytest

from gripfast_lab.sim.history import ONLY_TOKENS, Event
from gripfast_lab.sim.reach import EVERYBODY, Reach
from sim.events import asked, event, granted, life, lost, over, rules, world

NODES = ("n0", "n1", "n2")


def reach(*nodes: int, process: str = EVERYBODY, at: float = 0.0, until: float = math.inf) -> Reach:
    """Of three, some of which something is in the way of."""
    result = Reach(len(NODES), needed=2)
    for node in nodes:
        result.obstruct(at, until, process, [node])
    return result


def accepted(at: float, token: int, *nodes: str) -> list[Event]:
    return [event(at, "p/a#1", "accepted", token=token, note=node) for node in nodes]


UNREACHABLE = [asked(10, "p/a", patience=11), event(12, "p/a", "unreachable")]


def judged(history: list[Event], known: Reach) -> list[str]:
    return rules(history, may_be_unreachable=True, reach=known, reacts_within=1.0)


@pytest.mark.parametrize("known", [reach(), reach(0), reach(0, 1, process="q"), reach(0, 1, until=8.5)])
def test_a_majority_that_nothing_is_in_the_way_of_is_reached(known: Reach) -> None:
    assert judged(UNREACHABLE, known) == ["unreachable"]


@pytest.mark.parametrize("known", [reach(0, 1), reach(0, 2, process="p"), reach(0, 1, until=9.5), reach(1, 2, at=11.5)])
def test_without_a_majority_it_may_be_out_of_reach(known: Reach) -> None:
    assert judged(UNREACHABLE, known) == []


def test_once_the_faults_are_over_nodes_are_reached_unless_they_do_not_vote() -> None:
    history = [*UNREACHABLE, world(9, "healed")]
    known = reach(0, 1)
    assert judged(history, known) == ["unreachable"]
    known.abstains(9.0, 20.0, 0)
    assert judged(history, known) == ["unreachable"]
    known.abstains(9.0, 20.0, 1)
    assert judged(history, known) == []


def test_what_is_in_the_way_of_one_node_is_not_in_the_way_of_another() -> None:
    known = reach(1, process="p", at=1.0, until=2.0)
    assert known.is_free("p", 0, 0.0, 9.0)
    assert known.is_free("q", 1, 0.0, 9.0)
    assert known.is_free("p", 1, 2.5, 9.0)
    assert not known.is_free("p", 1, 0.0, 9.0)


def test_no_nodes_are_all_nodes() -> None:
    known = Reach(3, needed=2)
    known.obstruct(0.0, 1.0, "p", ())
    assert not any(known.is_free("p", node, 0.0, 1.0) for node in range(3))


# Tokens -------------------------------------------------------------------------------------------------------------


def test_a_token_that_a_majority_has_accepted_is_right() -> None:
    assert judged([*life(0, "p/a", 7, 5), *accepted(0.5, 7, "n0", "n2")], reach()) == []


@pytest.mark.parametrize(
    "told",
    [[], accepted(0.5, 7, "n0"), accepted(0.5, 7, "n0", "n0"), accepted(2, 7, "n0", "n1"), accepted(0.5, 6, *NODES)],
    ids=["nobody", "one node", "one node twice", "too late", "another token"],
)
def test_a_token_that_no_majority_has_accepted_is_none(told: list[Event]) -> None:
    assert judged([*life(0, "p/a", 7, 5), *told], reach()) == ["token"]


def test_what_a_node_has_accepted_does_not_become_smaller() -> None:
    assert rules([event(1, "p/a#1", "lowered", token=3, note="n0 had 4")]) == ["token"]


# Forgetful nodes ----------------------------------------------------------------------------------------------------

FORGOT = world(2, "forgot", until=2, note=ONLY_TOKENS)


def test_one_node_that_forgot_excuses_a_lease_that_is_lost_early() -> None:
    history = [asked(0, "p/a"), granted(1, "p/a", 1), lost(3, "p/a")]
    assert rules(history) == ["robbed"]
    assert rules([*history, FORGOT]) == []


def test_one_node_that_forgot_excuses_no_overlap() -> None:
    assert rules([*life(0, "p/a", 1, 5), *life(3, "q/b", 2, 6), FORGOT]) == ["overlap"]


def test_one_node_that_forgot_starts_tokens_anew() -> None:
    history = [*life(0, "p/a", 7, 1.5), *life(3, "q/b", 2, 6)]
    assert rules(history) == ["token", "token"]
    assert rules([*history, FORGOT]) == []


# Waking -------------------------------------------------------------------------------------------------------------

HELD = [*life(0, "p/a", 1, 3), *accepted(0.5, 1, *NODES)]
WAITS = asked(1, "q/b", until=30, patience=30)
GRANTED = [granted(5, "q/b", 2), *over(6, "q/b"), *accepted(4, 2, *NODES)]


def test_who_waits_has_the_lock_soon_after_its_release() -> None:
    assert judged([*HELD, WAITS, *GRANTED], reach()) == ["idle"]


@pytest.mark.parametrize(
    "more",
    [
        [granted(3.2, "q/b", 2), *over(6, "q/b"), *accepted(3.15, 2, *NODES)],
        [*GRANTED, *life(2.15, "p/c", 3, 4.8), *accepted(3, 3, *NODES)],
        [*GRANTED, world(3.2, "fault", note="cut")],
        [event(3.2, "q/b", "cancelled")],
    ],
    ids=["it has", "somebody else came first", "a fault", "given up"],
)
def test_nobody_is_to_blame_if_that_could_not_be(more: list[Event]) -> None:
    assert "idle" not in judged([*HELD, WAITS, *more], reach())
