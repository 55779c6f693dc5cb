"""What may be repeated, what must get there, whom nobody has to follow: for all drivers of Redlock."""

import itertools
from typing import Any

from gripfast.core.redlock.nodes import (
    Accept,
    Each,
    Failed,
    ForceRelease,
    Free,
    Freed,
    Inspect,
    Renew,
    Request,
    Scan,
    TakeBack,
    Unlock,
    Vote,
    Why,
)
from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores.inboxes import BlockingInbox, Inboxes
from gripfast.stores.redis.conversation import repeated
from gripfast.stores.redis.faults import cut
from gripfast.stores.redlock import polls
from stores.redlock_stage import wording

VOTE = Vote("job", "ann", 1, 30.0, None, 1, waits=True)
BACK = TakeBack("job", "bob", 1, 30.0, None, 1)
UNLOCK, FREE = Unlock("job", "ann", 1), Free("job", "ann")


def test_only_votes_and_taking_back_are_claims() -> None:
    assert list(polls.claims(VOTE)) == ["ann"]
    assert list(polls.claims(Each([BACK, BACK]))) == ["bob", "bob"]
    others: list[Request] = [FREE, UNLOCK, Inspect("job"), Each([FREE])]
    assert not any(polls.claims(each) for each in others)


def test_who_waits_keeps_its_position_when_an_attempt_is_cleaned_up() -> None:
    inboxes, inbox = Inboxes(), BlockingInbox()
    assert list(polls.ends(FREE, inboxes)) == list(polls.ends(UNLOCK, inboxes)) == ["ann"]
    inboxes.add("ann", inbox)
    assert list(polls.ends(FREE, inboxes)) == ["ann"]
    assert not polls.ends(UNLOCK, inboxes)
    assert list(polls.ends(Each([FREE, UNLOCK]), inboxes)) == ["ann"]
    assert not polls.ends(VOTE, inboxes)


def test_what_was_lost_with_a_connection_that_had_answered_is_repeated_once() -> None:
    lost, lost_at_first = cut("n1", None, was_idle=True), cut("n1", None)
    assert polls.may_repeat(VOTE, lost, is_repeated=False)
    assert not polls.may_repeat(VOTE, lost_at_first, is_repeated=False)
    assert not polls.may_repeat(VOTE, lost, is_repeated=True)
    assert not polls.may_repeat(VOTE, repeated(lost), is_repeated=False)
    assert not polls.may_repeat(ForceRelease("job"), lost, is_repeated=False)


def test_what_nobody_waits_for_is_asked_again_only_if_it_cleans_up() -> None:
    assert polls.may_be_late(VOTE, is_wanted=True)
    assert not polls.may_be_late(VOTE, is_wanted=False)
    assert polls.may_be_late(Each([FREE]), is_wanted=False)


def test_those_that_are_down_are_asked_when_no_majority_is_up() -> None:
    assert [polls.too_few(up, asked=5) for up in range(6)] == [True] * 3 + [False] * 3


def test_what_could_not_be_followed_has_to_be_cleaned_up_again() -> None:
    gone, held = Freed(was_held=False, has_waiters=False), Freed(was_held=True, has_waiters=False)
    read = polls.after_following("redis://a", [gone, gone, gone, held], [None, True, False, False], is_repeated=False)
    assert isinstance(read, list)
    assert (read[0], read[1], read[3]) == (gone, held, held)
    assert isinstance(read[2], Failed)
    assert isinstance(read[2].error, OutcomeUnknown)


def test_a_clean_up_that_has_followed_is_done_though_its_node_was_not_asked() -> None:
    down = Failed(StoreUnavailable("down"), was_asked=False)
    assert polls.not_answered(FREE, down, ()) == down
    assert polls.not_answered(FREE, down, [False]) == down._replace(was_asked=True)
    assert polls.not_answered(FREE, down, [True]) == Freed(was_held=True, has_waiters=False)
    assert polls.not_answered(Each([FREE, FREE]), down, [True, None]) == [Freed(True, False), down]
    assert [polls.both(*each) for each in [(None, None), (True, None), (None, False), (True, False)]] == [
        None,
        True,
        False,
        False,
    ]


def test_an_answer_that_makes_no_sense_is_the_failure_of_its_node_alone() -> None:
    """Otherwise one of five would have every request of every client fail."""
    requests: list[Request] = [VOTE, BACK, FREE, UNLOCK, Inspect("job"), ForceRelease("job"), Scan("", "0")]
    requests += [Accept("job", "ann", 1, 30.0, None, 1), Renew("job", "ann", 1, 30.0, False), Why("job", "ann", 1)]
    nonsense: list[Any] = [b"OK", None, 7, -5, [], [b"a", b"b", 7], [[1], [b"x"]], b"\xff\xfe", [None], 1.5, True]
    for request, reply in itertools.product([*requests, Each([FREE])], nonsense):
        wording().read(request, [reply], "redis://a")
    answer = wording().read(VOTE, [b"OK"], "redis://a")
    assert isinstance(answer, Failed)
    assert answer.was_asked
    assert "redis://a gave an answer that makes no sense (b'OK')" in str(answer.error)
    assert isinstance(wording().read(Each([FREE, FREE]), [1], "redis://a"), Failed)
