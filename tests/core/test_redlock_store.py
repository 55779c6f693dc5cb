"""Claims on five nodes whose answers are told beforehand."""

from __future__ import annotations

import pytest

from core.scripted_nodes import FREED, NAMES, TTL, WALL_US, YES, QuietInbox, Stage, busy, down, locked_only
from gripfast.core.ports import Granted, Taken, Unreachable
from gripfast.core.redlock.nodes import Accept, Answer, Busy, Establish, Mark, Newborn, Unlock, Unmarked, Vote, Wake


@pytest.fixture
def stage() -> Stage:
    return Stage()


# Votes --------------------------------------------------------------------------------------------------------------


def test_three_of_five_are_enough_and_nobody_else_is_waited_for(stage: Stage) -> None:
    assert stage.granted() == Granted(WALL_US, TTL)
    assert stage.nodes.polls[0].asked == [0, 1, 2, 3, 4]
    assert stage.nodes.polls[0].heard == [0, 1, 2]
    assert stage.nodes.sent == []


def test_every_node_is_asked_the_same_in_one_round(stage: Stage) -> None:
    stage.granted()
    vote = stage.nodes.polls[0].single
    assert isinstance(vote, Vote)
    assert (vote.name, vote.owner, vote.ttl, vote.proposal, vote.waits) == ("job", "me", TTL, WALL_US, False)


@pytest.mark.parametrize("missing", [down(3), down(3, was_asked=False), busy(), Newborn(9.0), Unmarked(1)])
def test_two_nodes_that_do_not_vote_for_it_change_nothing(stage: Stage, missing: Answer) -> None:
    assert stage.granted(missing, missing, YES, YES, YES) == Granted(WALL_US, TTL)


def test_two_of_the_two_that_answered_are_no_majority(stage: Stage) -> None:
    stage.nodes.will_answer(YES, YES, down(2), down(3), down(4))
    assert isinstance(stage.claim(), Unreachable)


def test_three_nodes_that_are_down_are_told_each_by_its_name(stage: Stage) -> None:
    stage.nodes.will_answer(YES, busy(), down(2), down(3, why="refused the connection"), down(4, was_asked=False))
    answer = stage.claim()
    assert isinstance(answer, Unreachable)
    nodes = answer.error.nodes
    assert set(nodes) == set(NAMES)
    assert nodes[NAMES[2]] == "did not answer"
    assert nodes[NAMES[3]] == "refused the connection"
    assert nodes[NAMES[0]] == nodes[NAMES[1]] == "answered"
    assert "3 are needed" in str(answer.error)
    assert NAMES[3] in str(answer.error)


def test_a_lock_that_is_taken_is_not_an_engine_that_is_down(stage: Stage) -> None:
    stage.nodes.will_answer(down(0), down(1), busy(), busy(), busy())
    answer = stage.claim()
    assert isinstance(answer, Taken)
    assert answer.holder is not None
    assert answer.holder.owner == "someone"
    assert not answer.is_split


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 3, 1, 4]])
def test_a_majority_that_is_down_is_told_in_whatever_order_that_is_learned(stage: Stage, order: list[int]) -> None:
    stage.nodes.will_answer(busy(), busy(), down(2), down(3), down(4), order=order)
    assert isinstance(stage.claim(), Unreachable)


def test_a_vote_that_nobody_won_is_split_and_tried_again_soon(stage: Stage) -> None:
    stage.nodes.will_answer(YES, busy("a"), busy("a"), busy("b"), busy("b"))
    answer = stage.claim()
    assert isinstance(answer, Taken)
    assert answer.is_split
    assert answer.again_in is not None
    assert answer.again_in < 0.1


def test_a_holder_has_a_majority_and_its_pause_is_no_longer_than_its_time(stage: Stage) -> None:
    stage.nodes.will_answer(*[busy("a", expires_in=0.02)] * 5)
    answer = stage.claim()
    assert not answer.is_split
    assert answer.again_in < 0.04


def test_a_holder_is_shown_with_the_largest_token_that_it_wrote(stage: Stage) -> None:
    stage.nodes.will_answer(busy("a", fence=7), busy("a", fence=9), busy("a", fence=8), YES, YES)
    answer = stage.claim()
    assert answer.holder.owner == "a"
    assert answer.holder.token == 9


def test_each_attempt_has_a_number_of_its_own(stage: Stage) -> None:
    stage.nodes.all_answer(busy())
    stage.nodes.all_answer(busy())
    stage.nodes.all_answer(YES)
    for owner in ("me", "me", "you"):
        stage.claim(owner, QuietInbox())
    attempts = [poll.single.attempt for poll in stage.nodes.polled(Vote)]
    assert len(set(attempts)) == 3
    assert attempts == sorted(attempts)


def test_an_earlier_attempt_of_the_same_owner_is_no_reason_to_say_taken(stage: Stage) -> None:
    """Nodes know their owner: the second vote is the same owner's, with a larger number, and gets YES where it was."""
    stage.nodes.will_answer(YES, YES, down(2), down(3), down(4))
    assert isinstance(stage.claim(), Unreachable)
    stage.nodes.all_answer(YES)
    assert isinstance(stage.claim(), Granted)
    first, second = [poll.single for poll in stage.nodes.polled(Vote)]
    assert isinstance(first, Vote)
    assert isinstance(second, Vote)
    assert first.owner == second.owner
    assert second.attempt > first.attempt


@pytest.mark.parametrize("failed", [True, False])
def test_the_clean_up_of_a_failed_attempt_names_that_attempt_only(stage: Stage, failed: bool) -> None:
    stage.nodes.will_answer(YES, *[down(node) if failed else busy() for node in range(1, 5)])
    stage.claim()
    vote = stage.nodes.polls[0].single
    assert isinstance(vote, Vote)
    for request, _ in stage.nodes.sent_of(Unlock):
        assert request == Unlock("job", "me", vote.attempt)


# Failed attempts ----------------------------------------------------------------------------------------------------


def test_a_failed_attempt_is_undone_everywhere_but_where_the_lock_was_taken(stage: Stage) -> None:
    stage.nodes.will_answer(YES, busy(), down(2), locked_only(3), down(4), order=[1, 0, 3, 2, 4])
    stage.claim()
    assert stage.nodes.sent_to(Unlock) == [0, 2, 3, 4]


def test_nodes_that_were_not_waited_for_are_cleaned_up_too(stage: Stage) -> None:
    stage.nodes.will_answer(busy(), busy(), busy(), YES, YES)
    stage.claim()
    assert stage.nodes.polls[0].heard == [0, 1, 2]
    assert stage.nodes.sent_to(Unlock) == [3, 4]


def test_a_node_that_was_not_even_asked_needs_no_clean_up(stage: Stage) -> None:
    gone = [down(node, was_asked=False) for node in (2, 3, 4)]
    stage.nodes.will_answer(YES, YES, *gone)
    stage.claim()
    assert stage.nodes.sent_to(Unlock) == [0, 1]


def test_a_node_that_was_asked_by_an_earlier_attempt_is_cleaned_up_although_it_is_down_now(stage: Stage) -> None:
    stage.nodes.will_answer(YES, YES, down(2), down(3), down(4))
    stage.claim()
    stage.nodes.sent.clear()
    stage.nodes.will_answer(YES, YES, *[down(node, was_asked=False) for node in (2, 3, 4)])
    stage.claim()
    stage.nodes.all_answer([FREED])
    stage.abandon()
    assert stage.nodes.polls[-1].asked == [0, 1, 2, 3, 4]


def test_a_failed_attempt_wakes_nobody(stage: Stage) -> None:
    stage.nodes.will_answer(YES, YES, busy(), busy(), busy("b"))
    stage.claim()
    stage.nodes.will_answer(YES, YES, down(2), down(3), down(4))
    stage.claim()
    assert stage.nodes.sent_of(Wake) == []


def test_a_refusal_that_will_not_go_away_is_told_as_such(stage: Stage) -> None:
    no = [down(node, is_permanent=True, why="NOAUTH") for node in range(3)]
    stage.nodes.will_answer(*no, YES, YES)
    answer = stage.claim()
    assert isinstance(answer, Unreachable)
    assert answer.is_permanent
    assert answer.error.nodes[NAMES[0]] == "NOAUTH"


def test_two_nodes_that_refuse_for_good_do_not_matter(stage: Stage) -> None:
    no = [down(node, is_permanent=True, why="NOAUTH") for node in range(2)]
    assert isinstance(stage.granted(*no, YES, YES, YES), Granted)


def test_a_majority_that_is_missing_only_for_now_is_asked_again(stage: Stage) -> None:
    stage.nodes.will_answer(down(0, is_permanent=True), down(1, is_permanent=True), down(2), YES, YES)
    assert isinstance(stage.claim(), Unreachable)


# Tokens -------------------------------------------------------------------------------------------------------------


def test_where_a_majority_has_accepted_the_proposal_is_the_token(stage: Stage) -> None:
    assert stage.granted(YES, YES, YES, locked_only(WALL_US + 9), busy()).token == WALL_US
    assert stage.nodes.polled(Accept) == []


def test_a_second_round_asks_those_who_locked_for_more_than_any_of_them_has_seen(stage: Stage) -> None:
    stage.nodes.will_answer(YES, locked_only(WALL_US + 5), busy(fence=WALL_US + 50), locked_only(WALL_US + 3), YES)
    stage.nodes.all_answer(YES)
    granted = stage.claim()
    second = stage.nodes.polled(Accept)[0]
    assert second.asked in ([0, 1, 3], [0, 1, 3, 4])
    accept = second.single
    assert isinstance(accept, Accept)
    assert accept.token == granted.token == WALL_US + 6
    vote = stage.nodes.polls[0].single
    assert isinstance(vote, Vote)
    assert (accept.owner, accept.attempt) == (vote.owner, vote.attempt)


def test_a_second_round_asks_those_whose_vote_is_still_to_come(stage: Stage) -> None:
    """A node may fall silent between the rounds: the three who were first are not the only majority there is."""
    stage.nodes.will_answer(*[locked_only(WALL_US + 5)] * 5)
    stage.nodes.will_answer(YES, YES, YES, YES, YES, order=[0, 1, 4])
    assert stage.claim().token == WALL_US + 6
    assert stage.nodes.polls[0].heard == [0, 1, 2]
    assert stage.nodes.polled(Accept)[0].asked == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0]], ids=str)
@pytest.mark.parametrize("refusal", [busy(), Busy(None, 0), locked_only(WALL_US + 50), down(0)])
def test_a_second_round_that_is_refused_is_a_failed_attempt(stage: Stage, refusal: Answer, order: list[int]) -> None:
    stage.nodes.will_answer(locked_only(WALL_US + 5), locked_only(1), locked_only(1), busy(), busy())
    stage.nodes.will_answer(refusal, YES, YES, YES, YES, order=order)
    assert not isinstance(stage.claim(), Granted)
    assert {0, 1, 2} <= set(stage.nodes.sent_to(Unlock))


def test_two_acceptances_of_the_second_round_are_no_majority_of_five(stage: Stage) -> None:
    stage.nodes.will_answer(YES, YES, locked_only(WALL_US + 5), busy(), busy(), order=[3, 4, 0, 1, 2])
    stage.nodes.will_answer(YES, YES, Busy(None, 0), YES, YES)
    assert not isinstance(stage.claim(), Granted)


def test_what_was_seen_of_larger_tokens_is_proposed_next_time(stage: Stage) -> None:
    stage.nodes.will_answer(*[busy(fence=WALL_US + 40)] * 5)
    stage.claim()
    assert stage.granted().token > WALL_US + 40


def test_a_token_of_the_second_round_is_behind_the_next_proposal(stage: Stage) -> None:
    ahead = WALL_US + 100
    stage.nodes.will_answer(*[locked_only(ahead)] * 5)
    stage.nodes.all_answer(YES)
    first = stage.claim()
    stage.nodes.all_answer([FREED])
    stage.abandon()
    assert stage.granted(owner="you").token > first.token > ahead


def test_asking_again_for_a_lease_that_is_held_gives_the_token_that_it_has(stage: Stage) -> None:
    """A claim whose answer was lost is repeated: nodes know the writer of F, and accept nothing smaller."""
    first = stage.granted()
    stage.nodes.wall += 7
    again = stage.granted()
    assert again.token >= first.token


# Nodes without their memory -----------------------------------------------------------------------------------------


def test_nodes_that_came_back_empty_do_not_vote(stage: Stage) -> None:
    stage.nodes.will_answer(YES, YES, Newborn(12.0), Newborn(12.0), Unmarked(77))
    answer = stage.claim()
    assert isinstance(answer, Unreachable)
    assert "restarted without its data" in answer.error.nodes[NAMES[2]]
    assert "12" in answer.error.nodes[NAMES[2]]
    assert "birth marker" in answer.error.nodes[NAMES[4]]


def test_a_node_without_a_marker_is_told_to_mark_its_birth_where_others_have_one(stage: Stage) -> None:
    stage.granted(Unmarked(77), YES, Unmarked(78), YES, YES)
    assert stage.nodes.sent_of(Mark) == [(Mark(), [0, 2])]
    assert stage.nodes.polled(Establish) == []


def test_a_cluster_in_which_no_node_has_a_marker_is_new_and_established_at_once(stage: Stage) -> None:
    stage.nodes.will_answer(*[Unmarked(70 + node) for node in range(5)])
    stage.nodes.all_answer(True)
    stage.nodes.all_answer(YES)
    assert isinstance(stage.claim(), Granted)
    assert stage.nodes.polls[1].requests == [Establish(70 + node) for node in range(5)]
    assert stage.nodes.sent_of(Mark) == []


def test_a_cluster_that_does_not_become_established_is_not_asked_for_ever(stage: Stage) -> None:
    stage.nodes.all_answer(Unmarked(70))
    stage.nodes.all_answer(False)
    stage.nodes.all_answer(Unmarked(71))
    assert isinstance(stage.claim(), Unreachable)
    assert len(stage.nodes.polled(Establish)) == 1
    assert stage.nodes.has_said_all


@pytest.mark.parametrize("fifth", [down(4), down(4, was_asked=False), Newborn(3.0), busy(), YES])
def test_four_nodes_without_a_marker_are_no_new_cluster(stage: Stage, fifth: Answer) -> None:
    stage.nodes.will_answer(*[Unmarked(70)] * 4, fifth)
    assert not isinstance(stage.claim(), Granted)
    assert stage.nodes.polled(Establish) == []


# Standing in line ---------------------------------------------------------------------------------------------------


def test_whoever_waits_is_known_at_the_nodes_before_its_first_pause(stage: Stage) -> None:
    stage.nodes.listens = False
    inbox = QuietInbox()
    stage.nodes.all_answer(busy())
    answer = stage.claim(inbox=inbox)
    assert isinstance(answer, Taken)
    assert answer.again_in == 0.0
    assert stage.nodes.times_listened == 1
    stage.nodes.all_answer(busy())
    answer = stage.claim(inbox=inbox)
    assert isinstance(answer, Taken)
    assert answer.again_in is not None
    assert answer.again_in > 0.0
    first, second = [poll.single for poll in stage.nodes.polled(Vote)]
    assert isinstance(first, Vote)
    assert isinstance(second, Vote)
    assert not first.waits
    assert second.waits


def test_whoever_is_heard_of_already_stands_in_line_by_its_first_vote(stage: Stage) -> None:
    stage.nodes.all_answer(busy())
    stage.claim(inbox=QuietInbox())
    vote = stage.nodes.polls[0].single
    assert isinstance(vote, Vote)
    assert vote.waits
    assert stage.nodes.times_listened == 0


def test_whoever_can_not_be_woken_is_told_when_to_ask_again(stage: Stage) -> None:
    stage.nodes.listens = stage.nodes.listen_works = False
    stage.nodes.all_answer(busy())
    answer = stage.claim(inbox=QuietInbox())
    assert isinstance(answer, Taken)
    assert answer.again_in is not None
    assert answer.again_in <= 1.0


def test_whoever_does_not_wait_stands_in_no_line_and_listens_nowhere(stage: Stage) -> None:
    stage.nodes.listens = False
    stage.nodes.all_answer(busy())
    stage.claim()
    vote = stage.nodes.polls[0].single
    assert isinstance(vote, Vote)
    assert not vote.waits
    assert stage.nodes.times_listened == 0
