"""Races and half-known states of Redlock that once ended wrong."""

from __future__ import annotations

import math

import pytest

from core.scripted_nodes import FREED, HOLD, YES, QuietInbox, Stage, busy, down, info
from gripfast.core.ports import LockInfo, Taken, Unreachable
from gripfast.core.redlock import summary
from gripfast.core.redlock.nodes import Each, Free, Freed, Mark, Request, TakeBack, Unmarked
from gripfast.runtime.blocking import drive

NOT_MINE = Freed(was_held=False, has_waiters=False)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_a_shortening_that_a_node_may_hear_late_is_not_done(stage: Stage) -> None:
    """Otherwise a longer one after it could count on that node."""
    stage.granted()
    stage.nodes.will_answer([True], [True], [True], down(3, was_asked=True), [True])
    (answer,) = stage.renew(HOLD._replace(ttl=1.0, shortens=True))
    assert isinstance(answer, Unreachable)


def test_a_shortening_that_a_node_was_not_asked_for_is_done(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer([True], [True], [True], down(3, was_asked=False), [True])
    assert stage.renew(HOLD._replace(ttl=1.0, shortens=True)) == [None]


def test_what_is_taken_back_while_its_owner_releases_is_freed_again(stage: Stage) -> None:
    """The release still waits for a slow node when the node is taken back."""
    stage.granted()
    stage.nodes.will_answer([True], [True], [True], [True], [False])
    stage.nodes.will_answer(None, None, None, None, [True])
    polls = stage.nodes.poll

    async def poll(requests: list[Request | None], ballot: object, within: float = math.inf) -> None:
        if isinstance(requests[4], Each) and isinstance(requests[4].requests[0], TakeBack):
            record = stage.records.find("me")
            assert record is not None
            record.is_over = True
        await polls(requests, ballot)  # type: ignore[arg-type]

    stage.nodes.poll = poll  # type: ignore[method-assign, assignment]
    assert stage.renew() == [None]
    assert stage.nodes.sent_of(Free) == [(Free("job", "me"), [4])]


def test_nothing_is_taken_back_for_an_owner_who_is_done(stage: Stage) -> None:
    stage.granted()
    record = stage.records.find("me")
    assert record is not None
    record.is_over = True
    stage.nodes.will_answer([True], [True], [True], [True], [False])
    stage.renew()
    assert stage.nodes.polled(TakeBack) == []


def test_a_release_is_no_loss_if_a_majority_may_still_have_had_it(stage: Stage) -> None:
    """One of three nodes came back empty, the other two of five were down all the time."""
    stage.granted(YES, YES, YES, down(3, was_asked=False), down(4, was_asked=False))
    stage.nodes.will_answer(FREED, FREED, NOT_MINE, None, None)
    stage.nodes.will_answer(["expired"], ["expired"], ["expired"], down(3), down(4))
    assert stage.release() is None


def test_a_release_is_a_loss_if_a_majority_had_nothing(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer(FREED, FREED, NOT_MINE, NOT_MINE, NOT_MINE)
    stage.nodes.all_answer(["expired"])
    assert stage.release() == "expired"


def test_a_lock_that_may_be_held_is_shown(stage: Stage) -> None:
    stage.nodes.will_answer(info("ann"), info("ann"), None, down(3), down(4))
    seen = drive(stage.store.inspect("job"))
    assert isinstance(seen, LockInfo)
    assert seen.owner == "ann"


def test_half_of_an_even_number_of_nodes_is_no_majority() -> None:
    assert summary.holder([busy("ann"), busy("ann"), busy("bob"), busy("bob")], 4) is None


def test_nodes_of_a_cluster_that_is_just_starting_are_not_marked(stage: Stage) -> None:
    """Some are up already, and many ask at once."""
    for moment in range(50):
        unmarked = [Unmarked(1_000_000 + moment)] * 3
        stage.nodes.will_answer(*unmarked, down(3), down(4))
        assert isinstance(stage.claim(f"owner{moment}"), Unreachable)
    assert stage.nodes.sent_to(Mark) == []


def test_nodes_that_are_without_a_marker_for_long_are_marked_though_others_are_away(stage: Stage) -> None:
    for moment in (1_000_000, 1_011_000):
        stage.nodes.will_answer(*[Unmarked(moment)] * 3, down(3), down(4))
        stage.claim()
    assert stage.nodes.sent_to(Mark) == [0, 1, 2]


def test_an_owner_whom_the_engine_has_forgotten_is_forgotten(stage: Stage) -> None:
    stage.granted()
    stage.store.forget("me")
    assert not stage.knows()


def test_pauses_after_split_votes_grow_for_those_who_do_not_wait(stage: Stage) -> None:
    split = [YES, YES, busy("ann"), busy("ann"), busy("bob")]
    pauses = []
    for _ in range(4):
        stage.nodes.will_answer(*split)
        answer = stage.claim(inbox=None)
        assert isinstance(answer, Taken)
        assert answer.is_split
        pauses.append(answer.again_in or 0.0)
    assert pauses == sorted(set(pauses))
    stage.nodes.all_answer([FREED])
    stage.abandon()
    assert not stage.knows()


def test_who_could_listen_only_later_is_told_a_real_pause(stage: Stage) -> None:
    """Were it told to ask at once each time, it would never rest."""
    stage.nodes.listens = False
    inbox = QuietInbox()
    for turn in range(3):
        stage.nodes.all_answer(busy())
        answer = stage.claim(inbox=inbox)
        assert isinstance(answer, Taken)
        assert (answer.again_in == 0.0) == (turn == 0)
        stage.nodes.listens = False
