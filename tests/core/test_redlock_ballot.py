"""Counting votes: decided as early as it can be, and never earlier."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.scripted_nodes import YES, busy, down, locked_only
from gripfast.core.redlock.ballot import FreeBallot, Roll, VoteBallot, failures, majority
from gripfast.core.redlock.nodes import Answer, Freed, Newborn, Unmarked

FREED = Freed(was_held=True, has_waiters=False)
NOT_MINE = Freed(was_held=False, has_waiters=False)
ANSWERS: list[Answer] = [YES, locked_only(7), busy("a"), busy("b"), down(), Unmarked(1), Newborn(3.0)]


def heard_until_decided(ballot: VoteBallot | FreeBallot | Roll, answers: Sequence[Answer]) -> int:
    for node, answer in enumerate(answers):
        if ballot.add(node, answer):
            return node + 1
    raise AssertionError("everybody was heard, and it is not decided")


@pytest.mark.parametrize(("nodes", "needed"), [(3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_a_majority_is_more_than_half(nodes: int, needed: int) -> None:
    assert majority(nodes) == needed


def test_a_vote_is_won_by_a_majority_without_waiting_for_the_others() -> None:
    ballot = VoteBallot(5, 5)
    assert heard_until_decided(ballot, [YES] * 5) == 3
    assert ballot.is_won
    assert ballot.is_plain


def test_a_vote_is_lost_when_a_majority_is_out_of_reach() -> None:
    ballot = VoteBallot(5, 5)
    assert heard_until_decided(ballot, [busy()] * 5) == 3
    assert not ballot.is_locked


def test_one_who_is_still_to_come_may_decide() -> None:
    ballot = VoteBallot(5, 5)
    assert heard_until_decided(ballot, [YES, busy(), YES, busy(), YES]) == 5
    assert ballot.is_won


def test_a_majority_is_of_all_nodes_and_not_of_those_that_answered() -> None:
    ballot = VoteBallot(5, 5)
    heard_until_decided(ballot, [YES, YES, down(2), down(3), down(4)])
    assert not ballot.is_locked
    assert not ballot.is_won


def test_in_the_second_round_a_majority_is_of_all_nodes_and_not_of_those_that_were_asked() -> None:
    ballot = VoteBallot(5, 3, is_first=False)
    assert heard_until_decided(ballot, [YES, YES, busy()]) == 3
    assert not ballot.is_won


def test_a_second_round_is_lost_as_soon_as_too_few_can_accept() -> None:
    ballot = VoteBallot(5, 3, is_first=False)
    assert heard_until_decided(ballot, [locked_only(9), YES, YES]) == 1


def test_a_node_that_locked_without_accepting_does_not_count_for_the_token() -> None:
    ballot = VoteBallot(5, 5)
    heard_until_decided(ballot, [YES, YES, locked_only(9), busy(), busy()])
    assert ballot.is_locked
    assert not ballot.is_won


def test_a_vote_that_was_won_beside_other_answers_is_not_plain() -> None:
    for other in (busy(), down(0), Unmarked(1), Newborn(2.0), locked_only(9)):
        ballot = VoteBallot(5, 5)
        heard_until_decided(ballot, [other, YES, YES, YES, YES])
        assert not ballot.is_plain


def test_that_a_cluster_is_new_is_only_known_when_every_node_has_said_so() -> None:
    assert heard_until_decided(VoteBallot(5, 5), [Unmarked(1)] * 5) == 5


def test_one_node_with_a_marker_is_enough_to_know_that_the_cluster_is_not_new() -> None:
    assert heard_until_decided(VoteBallot(5, 5), [Unmarked(1), Unmarked(1), Newborn(1.0), YES, YES]) == 3


def outcome(ballot: VoteBallot) -> tuple[str, ...]:
    """What a vote can end in: the fast path, the round after it, a new cluster, "taken" or "could not ask"."""
    if ballot.is_won or ballot.is_locked:
        return ("locked",)
    if ballot.unmarked == len(ballot.answers):
        return ("new",)
    could_not_vote = [each for each in ballot.answers if isinstance(each, Unmarked | Newborn)]
    missing = len(failures(ballot.answers)) + len(could_not_vote)
    return ("unreachable",) if missing > len(ballot.answers) - majority(len(ballot.answers)) else ("taken",)


@given(st.sampled_from([3, 4, 5, 7]).flatmap(lambda n: st.lists(st.sampled_from(ANSWERS), min_size=n, max_size=n)))
def test_what_is_decided_early_is_what_all_answers_together_say(answers: list[Answer]) -> None:
    early, complete = VoteBallot(len(answers), len(answers)), VoteBallot(len(answers), len(answers))
    heard_until_decided(early, answers)
    for node, answer in enumerate(answers):
        complete.add(node, answer)
    assert outcome(early) == outcome(complete)


@given(st.lists(st.sampled_from(ANSWERS), min_size=5, max_size=5))
def test_the_order_of_the_answers_does_not_matter(answers: list[Answer]) -> None:
    outcomes = set()
    for order in itertools.islice(itertools.permutations(answers), 0, None, 7):
        ballot = VoteBallot(5, 5)
        heard_until_decided(ballot, order)
        outcomes.add(outcome(ballot))
    assert len(outcomes) == 1


@given(st.lists(st.sampled_from(ANSWERS), min_size=5, max_size=5))
def test_nobody_is_waited_for_who_can_change_nothing(answers: list[Answer]) -> None:
    """The last answer that was waited for mattered: with others in its place, and after it, it ends otherwise."""
    ballot = VoteBallot(5, 5)
    heard = heard_until_decided(ballot, answers)
    known = answers[: heard - 1]
    possible: list[Answer] = [YES, busy("a"), down()]
    others = [[*known, *rest] for rest in itertools.product(possible, repeat=5 - len(known))]
    outcomes = set()
    for other in others:
        complete = VoteBallot(5, 5)
        for node, answer in enumerate(other):
            complete.add(node, answer)
        outcomes.add(outcome(complete))
    assert len(outcomes) > 1 or any(isinstance(each, Unmarked) for each in answers)


@given(st.lists(st.sampled_from(ANSWERS), min_size=5, max_size=5))
def test_a_vote_counts_as_won_only_with_three_acceptances_of_five(answers: list[Answer]) -> None:
    ballot = VoteBallot(5, 5)
    heard_until_decided(ballot, answers)
    if ballot.is_won:
        assert answers.count(YES) >= 3


# Releases -----------------------------------------------------------------------------------------------------------


def test_a_release_is_over_when_a_majority_is_free() -> None:
    ballot = FreeBallot(5, 5)
    assert heard_until_decided(ballot, [FREED, NOT_MINE, FREED, FREED, FREED]) == 4
    assert ballot.is_free


def test_a_release_that_finds_too_little_hears_everybody() -> None:
    ballot = FreeBallot(5, 5)
    assert heard_until_decided(ballot, [NOT_MINE, FREED, down(2), NOT_MINE, FREED]) == 5
    assert not ballot.is_free


def test_a_roll_hears_everybody_who_was_asked() -> None:
    assert heard_until_decided(Roll(5, 5), [True, False, True, True, True]) == 5
    assert heard_until_decided(Roll(5, 2), [True, True]) == 2
