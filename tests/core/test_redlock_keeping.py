"""Renewals and releases on five nodes whose answers are told beforehand, and what is remembered of them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from core.scripted_nodes import FREED, HOLD, NAMES, TTL, YES, QuietInbox, Stage, busy, down, info
from gripfast.core.ports import Broken, Hold, Unreachable
from gripfast.core.redlock.nodes import Each, Free, Freed, Renew, TakeBack, Vote, Wake
from gripfast.runtime.blocking import drive

FREED_BEFORE_OTHERS = Freed(was_held=True, has_waiters=True)
NOT_MINE = Freed(was_held=False, has_waiters=False)


@pytest.fixture
def stage() -> Stage:
    return Stage()


# Renewals -----------------------------------------------------------------------------------------------------------


def test_a_lease_is_kept_by_a_majority(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer([True], [True], [True], down(3), down(4))
    assert stage.renew() == [None]


def test_a_renewal_is_of_the_attempt_that_was_granted(stage: Stage) -> None:
    stage.nodes.will_answer(YES, YES, down(2), down(3), down(4))
    stage.claim()
    stage.granted()
    stage.nodes.all_answer([True])
    stage.renew(HOLD._replace(ttl=7.0, shortens=True))
    vote = stage.nodes.polled(Vote)[-1].single
    assert isinstance(vote, Vote)
    assert stage.nodes.polls[-1].single == Each([Renew("job", "me", vote.attempt, 7.0, True)])


@pytest.mark.parametrize("reason", ["expired", "taken", "broken"])
def test_a_lease_that_is_gone_at_a_majority_is_lost_and_the_nodes_tell_why(stage: Stage, reason: Any) -> None:
    stage.granted()
    stage.nodes.will_answer([True], [True], [False], [False], [False])
    stage.nodes.will_answer(["expired"], ["expired"], [reason], ["expired"], [reason])
    assert stage.renew() == [reason]


def test_one_node_that_knows_the_reason_of_a_force_release_is_enough(stage: Stage) -> None:
    stage.granted()
    stage.nodes.all_answer([False])
    stage.nodes.will_answer(["taken"], ["broken"], [Broken("deploy of v2")], ["expired"], down(4))
    assert stage.renew() == [Broken("deploy of v2")]


def test_a_lease_that_is_gone_stays_lost_though_nobody_can_tell_why(stage: Stage) -> None:
    stage.granted()
    stage.nodes.all_answer([False])
    stage.nodes.will_answer(*[down(node) for node in range(5)])
    assert stage.renew() == ["expired"]


def test_a_renewal_between_kept_and_lost_could_not_be_asked(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer([True], [True], [False], [False], down(4))
    (answer,) = stage.renew()
    assert isinstance(answer, Unreachable)
    assert answer.error.nodes[NAMES[4]] == "did not answer"
    assert stage.nodes.polled(TakeBack) == []


def test_each_of_several_leases_is_counted_on_its_own(stage: Stage) -> None:
    for owner in ("a", "b", "c"):
        stage.granted(owner=owner)
    kept_lost_kept, kept_lost_lost, all_lost = [True, False, True], [True, False, False], [False, False, False]
    stage.nodes.will_answer(kept_lost_kept, kept_lost_kept, kept_lost_lost, all_lost, down(4))
    stage.nodes.all_answer(["taken"])
    stage.nodes.all_answer([True])
    kept, lost, unknown = stage.renew(*[Hold(f"job {owner}", owner, TTL) for owner in "abc"])
    assert (kept, lost) == (None, "taken")
    assert isinstance(unknown, Unreachable)
    (back,) = stage.nodes.polled(TakeBack)
    assert back.asked == [3]
    assert back.single.requests[0].owner == "a"


def test_a_renewal_never_sets_what_is_absent(stage: Stage) -> None:
    stage.granted()
    stage.nodes.all_answer([False])
    stage.nodes.all_answer(["expired"])
    stage.renew()
    assert stage.nodes.polled(TakeBack) == []


# Taking back --------------------------------------------------------------------------------------------------------


def test_a_node_that_has_lost_it_is_taken_back_after_a_majority_was_renewed(stage: Stage) -> None:
    token = stage.granted().token
    stage.nodes.will_answer([True], [False], [True], [True], down(4))
    stage.nodes.all_answer([True])
    assert stage.renew() == [None]
    vote, back = stage.nodes.polls[0].single, stage.nodes.polls[-1]
    assert isinstance(vote, Vote)
    assert back.asked == [1]
    assert back.single == Each([TakeBack("job", "me", vote.attempt, TTL, None, token)])


def test_what_is_taken_back_does_not_count_in_the_same_round(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer([True], [True], [False], down(3), down(4))
    (answer,) = stage.renew()
    assert isinstance(answer, Unreachable)
    assert stage.nodes.polled(TakeBack) == []


def test_a_node_that_can_not_be_taken_back_is_no_loss(stage: Stage) -> None:
    stage.granted()
    for refused in ([False], down(1)):
        stage.nodes.will_answer([True], [False], [True], [True], [True])
        stage.nodes.will_answer(refused, refused, refused, refused, refused)
        assert stage.renew() == [None]
    assert len(stage.nodes.polled(TakeBack)) == 2, "and is asked again at the next renewal"


def test_what_was_taken_back_is_given_back_by_the_release(stage: Stage) -> None:
    gone = down(4, was_asked=False)
    stage.granted(gone, YES, YES, YES, YES)
    stage.nodes.will_answer([False], [True], [True], [True], [True])
    stage.nodes.all_answer([True])
    stage.renew()
    stage.nodes.all_answer(FREED)
    stage.release()
    assert 0 in stage.nodes.polled(Free)[-1].asked


def test_a_lease_that_was_released_meanwhile_is_not_taken_back(stage: Stage) -> None:
    stage.granted()
    nodes, original = stage.nodes, stage.nodes.poll

    async def poll(requests: Any, ballot: Any, within: float = math.inf) -> None:
        await original(requests, ballot, within)
        if nodes.polls[-1] in nodes.polled(TakeBack):
            nodes.all_answer(FREED)
            nodes.poll = original  # type: ignore[method-assign]
            await stage.store.release(HOLD)

    nodes.will_answer([True], [False], [True], [True], [True])
    nodes.all_answer([True])
    nodes.poll = poll  # type: ignore[method-assign]
    stage.renew()
    assert (Free("job", "me"), [1]) in nodes.sent, "whatever was set after the release is taken away again"


def test_a_lease_that_was_released_before_its_renewal_is_over_takes_nothing_back(stage: Stage) -> None:
    stage.granted()
    stage.nodes.all_answer(FREED)
    stage.release()
    stage.nodes.will_answer([False], [True], [True], [True], [True])
    stage.renew()
    assert stage.nodes.polled(TakeBack) == []


# Releases -----------------------------------------------------------------------------------------------------------


def release_lazily(stage: Stage) -> list[bool]:
    """What was told."""
    told: list[bool] = []
    drive(stage.store.release_lazily(HOLD, told.append))
    return told


def test_a_lazy_release_is_told_when_a_majority_is_free_and_wakes_a_waiter(stage: Stage) -> None:
    stage.granted()
    stage.nodes.all_answer(FREED_BEFORE_OTHERS)
    assert release_lazily(stage) == [True]
    assert stage.nodes.polls[-1].asked == [0, 1, 2, 3, 4]
    assert stage.nodes.sent_of(Wake) == [(Wake("job"), [0, 1])]
    assert stage.records.find("me") is None


def test_a_lazy_release_of_what_a_majority_has_lost_is_told_as_such(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer(NOT_MINE, NOT_MINE, NOT_MINE, FREED, FREED)
    assert release_lazily(stage) == [False]


def test_a_lazy_release_that_a_node_has_not_answered_is_told_to_nobody(stage: Stage) -> None:
    """A clean-up follows, and asks all nodes."""
    stage.granted()
    stage.nodes.will_answer(down(0), FREED, FREED, down(3), FREED)
    assert release_lazily(stage) == []
    assert stage.records.find("me") is not None


def test_a_lazy_release_that_can_not_leave_at_once_is_waited_for(stage: Stage) -> None:
    stage.granted()
    stage.nodes.begins = False
    stage.nodes.all_answer(FREED)
    assert release_lazily(stage) == [True]


def test_a_lazy_release_that_is_waited_for_in_vain_is_told_to_nobody(stage: Stage) -> None:
    stage.granted()
    stage.nodes.begins = False
    stage.nodes.will_answer(down(0), FREED, FREED, FREED, FREED)
    assert release_lazily(stage) == []


def test_a_release_is_over_when_a_majority_is_free_and_everybody_was_told(stage: Stage) -> None:
    stage.granted()
    stage.nodes.all_answer(FREED)
    assert stage.release() is None
    assert stage.nodes.polls[-1].single == Free("job", "me")
    assert stage.nodes.polls[-1].asked == [0, 1, 2, 3, 4]
    assert stage.nodes.polls[-1].heard == [0, 1, 2]


def test_a_release_does_not_ask_nodes_that_can_not_have_it(stage: Stage) -> None:
    stage.granted(down(0, was_asked=False), YES, YES, YES, YES)
    stage.nodes.all_answer(FREED)
    assert stage.release() is None
    assert stage.nodes.polls[-1].asked == [1, 2, 3, 4]


def test_a_release_asks_a_node_that_may_have_got_the_vote(stage: Stage) -> None:
    stage.granted(down(0), YES, YES, YES, YES)
    stage.nodes.all_answer(FREED)
    stage.release()
    assert stage.nodes.polls[-1].asked == [0, 1, 2, 3, 4]


def test_a_release_that_did_not_reach_everyone_is_repeated(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer(down(0), down(1), down(2), FREED, FREED)
    answer = stage.release()
    assert isinstance(answer, Unreachable)
    assert set(answer.error.nodes) == set(NAMES)
    stage.nodes.will_answer(FREED, FREED, FREED, NOT_MINE, NOT_MINE)
    assert stage.release() is None


def test_a_node_that_was_down_at_the_release_is_asked_again_although_a_majority_is_free(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer(FREED, down(1), FREED, FREED, FREED)
    assert isinstance(stage.release(), Unreachable)
    assert stage.knows()
    stage.nodes.will_answer(NOT_MINE, FREED, NOT_MINE, NOT_MINE, NOT_MINE)
    stage.nodes.all_answer(["expired"])
    stage.release()
    assert 1 in stage.nodes.polled(Free)[-1].asked
    assert not stage.knows()


def test_a_release_of_what_was_lost_tells_why(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer(FREED, FREED, NOT_MINE, NOT_MINE, NOT_MINE)
    stage.nodes.will_answer(["expired"], ["expired"], ["taken"], ["taken"], ["taken"])
    assert stage.release() == "taken"


def test_the_release_of_a_lease_wakes_the_first_in_line_at_two_nodes(stage: Stage) -> None:
    """It may have left the line of one of them, by getting that node before it was free elsewhere."""
    stage.granted()
    stage.nodes.all_answer(FREED_BEFORE_OTHERS)
    stage.release()
    (wake,) = stage.nodes.sent_of(Wake)
    assert wake[0] == Wake("job")
    assert len(wake[1]) == 2


def test_a_release_for_which_nobody_waits_wakes_nobody(stage: Stage) -> None:
    stage.granted()
    stage.nodes.all_answer(FREED)
    stage.release()
    assert stage.nodes.sent_of(Wake) == []


def test_a_release_that_was_repeated_wakes_a_waiter_when_it_has_reached_a_majority(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer(down(0), down(1), down(2), FREED_BEFORE_OTHERS, FREED_BEFORE_OTHERS)
    stage.release()
    stage.nodes.sent.clear()
    waited_for = Freed(was_held=False, has_waiters=True)
    stage.nodes.will_answer(FREED_BEFORE_OTHERS, FREED_BEFORE_OTHERS, FREED_BEFORE_OTHERS, waited_for, waited_for)
    assert stage.release() is None
    assert len(stage.nodes.sent_of(Wake)) == 1


def test_a_lease_that_is_given_back_unseen_wakes_a_waiter_too(stage: Stage) -> None:
    """It was granted, but nobody has it: cancelled, or too late."""
    stage.granted()
    stage.nodes.all_answer([FREED_BEFORE_OTHERS])
    assert stage.abandon() is None
    assert len(stage.nodes.sent_to(Wake)) == 2


def test_a_waiter_that_gives_up_wakes_nobody_while_the_lock_is_held(stage: Stage) -> None:
    stage.nodes.all_answer(busy())
    stage.claim(inbox=QuietInbox())
    stage.nodes.all_answer([NOT_MINE])
    assert stage.abandon() is None
    assert stage.nodes.sent_of(Wake) == []


def test_several_owners_are_given_back_together(stage: Stage) -> None:
    stage.granted(owner="a")
    stage.granted(down(0, was_asked=False), YES, YES, YES, YES, owner="b")
    stage.nodes.will_answer([FREED], *[[FREED, FREED]] * 4)
    assert stage.abandon(Hold("job", "a", TTL), Hold("job", "b", TTL)) is None
    first, second = stage.nodes.polls[-1].requests[:2]
    assert first == Each([Free("job", "a")])
    assert second == Each([Free("job", "a"), Free("job", "b")])


def test_what_could_not_be_given_back_everywhere_is_asked_again(stage: Stage) -> None:
    stage.granted()
    stage.nodes.will_answer([FREED], [FREED], [FREED], [FREED], down(4))
    assert isinstance(stage.abandon(), Unreachable)
    assert stage.knows()
    stage.nodes.all_answer([FREED])
    assert stage.abandon() is None


def test_forcing_a_lock_frees_it_everywhere_and_wakes_a_waiter(stage: Stage) -> None:
    stage.nodes.all_answer(info())
    stage.nodes.will_answer(FREED_BEFORE_OTHERS, FREED_BEFORE_OTHERS, FREED_BEFORE_OTHERS, NOT_MINE, down(4))
    assert drive(stage.store.force_release("job")) is True
    assert stage.nodes.polls[-1].asked == [0, 1, 2, 3, 4]
    assert len(stage.nodes.sent_to(Wake)) == 2


def test_forcing_a_lock_that_nobody_has_is_told(stage: Stage) -> None:
    stage.nodes.all_answer(None)
    stage.nodes.all_answer(NOT_MINE)
    assert drive(stage.store.force_release("job")) is False


@pytest.mark.parametrize("is_seen_at_once", [True, False])
def test_forcing_a_lock_without_a_majority_is_told(stage: Stage, is_seen_at_once: bool) -> None:
    gone = [down(node) for node in (2, 3, 4)]
    stage.nodes.will_answer(info(), info(), *(gone if is_seen_at_once else [info()] * 3))
    stage.nodes.will_answer(FREED, FREED, *gone)
    assert isinstance(drive(stage.store.force_release("job")), Unreachable)


# What is remembered -------------------------------------------------------------------------------------------------


def test_a_released_lease_is_forgotten(stage: Stage) -> None:
    stage.granted()
    assert stage.knows()
    stage.nodes.all_answer(FREED)
    stage.release()
    assert not stage.knows()


def test_an_abandoned_owner_is_forgotten(stage: Stage) -> None:
    stage.nodes.will_answer(YES, YES, down(2), down(3), down(4))
    stage.claim()
    assert stage.knows()
    stage.nodes.all_answer([FREED])
    stage.abandon()
    assert not stage.knows()


def test_whoever_found_it_taken_and_does_not_wait_is_forgotten(stage: Stage) -> None:
    stage.nodes.all_answer(busy())
    stage.claim()
    assert not stage.knows()


def test_whoever_waits_is_remembered_until_it_leaves(stage: Stage) -> None:
    stage.nodes.all_answer(busy())
    stage.claim(inbox=QuietInbox())
    assert stage.knows()
    stage.nodes.all_answer([NOT_MINE])
    stage.abandon()
    assert not stage.knows()


def test_an_owner_that_nobody_remembers_is_asked_for_everywhere(stage: Stage) -> None:
    """Another process's, or of an interrupted claim: nothing says where it may have something."""
    stage.nodes.all_answer([NOT_MINE])
    assert stage.abandon() is None
    assert stage.nodes.polls[-1].asked == [0, 1, 2, 3, 4]


def test_whoever_waits_is_woken_when_the_client_is_closed(stage: Stage) -> None:
    stage.store.stop_waiting()
    assert stage.nodes.is_shut
