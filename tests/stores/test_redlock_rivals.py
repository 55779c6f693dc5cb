"""A clean-up follows a claim on a bundle that another thread gives back, or gives up, at any instruction."""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from gripfast import stores
from gripfast.core.redlock.nodes import Free, Inspect
from gripfast.machine import boottime
from gripfast.stores.redis.conversation import NOBODY
from gripfast.stores.redlock.bundle import Loan
from gripfast.stores.redlock.health import Node
from gripfast.stores.redlock.lent import LentConversation, Timers
from gripfast.stores.redlock.polls import NOBODY as NO_POLL
from gripfast.stores.redlock.polls import Question
from gripfast.stores.redlock.pool import Pool
from stores.redlock_stage import lent_by
from support.switching import at_every_opcode

FOLDER = Path(stores.__file__).parent
VOTE, CLEAN_UP = b"vote", b"clean-up"


class Lent(NamedTuple):
    """To one thread, who has asked nothing yet: a vote of an earlier borrower is still unanswered on it."""

    pool: Pool
    loans: list[Loan]
    """The one, while that thread has it."""
    conversation: LentConversation
    node: Node
    there: socket.socket
    told: list[bool]
    """Whether the owner of that vote was told that its clean-up follows."""

    def follow(self) -> None:
        """What that owner does."""
        left = self.node.server.clean_up_elsewhere("ann", lambda: CLEAN_UP, is_done=True, here=None)
        self.told.append(left is True)

    def vote_again(self) -> None:
        """On the same connection."""
        self.conversation.ask_for(NOBODY, VOTE, "ann")

    def clean_up_for_bob(self) -> None:
        """By hash, and nobody waits for the reply."""
        talk = self.loans[0].bundle.talk.talks[0]
        Question(talk, Free("job", "bob"), NO_POLL).put(self.conversation, b"by hash")

    def put_back(self) -> None:
        self.pool.put_back(self.loans.pop())

    def dismiss(self) -> None:
        """There are too many."""
        self.pool._idle_most = 0
        self.pool.put_back(self.loans.pop())

    def give_up(self) -> None:
        """The node is silent."""
        self.conversation._give_up(1.0)
        self.pool.put_back(self.loans.pop())

    def read(self) -> None:
        """The vote is answered just now, and may have come after the clean-up that left elsewhere."""
        self.there.send(b":1\r\n")
        self.conversation.read()
        self.pool.put_back(self.loans.pop())

    def drop(self) -> None:
        """As an interrupt does."""
        self.loans.clear()
        self.pool.pick_up()

    def arrived(self) -> bytes:
        """Since this was asked last."""
        with suppress(BlockingIOError):
            return self.there.recv(100_000)
        return b""

    @property
    def unanswered(self) -> list[LentConversation]:
        return self.node.server.unanswered_of("ann")

    def is_lost_or_sent_again(self) -> bool:
        """The clean-up of bob."""
        return any(b"bob." in packed for packed in [*self.node.lost, self.arrived()])


@contextmanager
def lent() -> Iterator[Lent]:
    with lent_by() as (nodes, loans, conversation, there):
        there.setblocking(False)
        conversation.ask_for(NOBODY, VOTE, "ann")
        yield Lent(nodes._pool, loans, conversation, nodes._nodes[0], there, [])


@pytest.mark.parametrize("gives", [Lent.put_back, Lent.dismiss, Lent.give_up])
@pytest.mark.parametrize("follows_first", [True, False])
def test_a_clean_up_follows_at_whatever_instruction_the_bundle_is_given_back(
    gives: Callable[[Lent], None], follows_first: bool
) -> None:
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        stack.close()  # the one before
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        return (each.follow, lambda: gives(each)) if follows_first else (lambda: gives(each), each.follow)

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            assert scenes[-1].arrived().startswith(VOTE + CLEAN_UP), where
            assert not scenes[-1].unanswered, where
    assert len(scenes) > 20


@pytest.mark.parametrize("follows_first", [True, False])
def test_a_clean_up_that_found_an_unanswered_vote_follows_it_though_it_is_answered_meanwhile(
    follows_first: bool,
) -> None:
    """The vote may have come behind the clean-up that its owner sends elsewhere."""
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        stack.close()  # the one before
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        return (each.follow, each.read) if follows_first else (each.read, each.follow)

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            assert scenes[-1].told == [CLEAN_UP in scenes[-1].arrived()], where
            assert not scenes[-1].unanswered, where
    assert {True, False} == {told for each in scenes for told in each.told}


def test_a_vote_that_leaves_while_the_last_one_is_cleaned_up_is_noted_or_followed() -> None:
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        stack.close()  # the one before
        scenes.append(stack.enter_context(lent()))
        return scenes[-1].follow, scenes[-1].vote_again

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            each = scenes[-1]
            each.put_back()
            assert each.arrived().endswith(CLEAN_UP) or each.unanswered, where
    assert len(scenes) > 20


def test_a_vote_is_noted_until_it_is_answered_itself() -> None:
    """The reply to an earlier one of its owner, which was cleaned up, says nothing about it."""
    with lent() as each:
        each.put_back()
        each.follow()
        each.vote_again()
        each.there.send(b":1\r\n:1\r\n")
        each.conversation.read()
        assert each.unanswered == [each.conversation]
        each.there.send(b":1\r\n")
        each.conversation.read()
        assert not each.unanswered


def test_a_clean_up_on_a_connection_that_is_given_up_is_sent_again() -> None:
    """Nobody will read that its script was forgotten."""
    with lent() as each:
        each.clean_up_for_bob()
        each.give_up()
        assert [b"bob." in packed for packed in each.node.lost] == [True]


def test_an_interrupt_while_it_is_read_that_a_script_was_forgotten_loses_no_clean_up() -> None:
    def prepare(each: Lent) -> Callable[[], None]:
        each.clean_up_for_bob()
        each.there.send(b":1\r\n-NOSCRIPT No matching script.\r\n")
        return each.conversation.read

    for each, where in interrupted(prepare):
        assert each.is_lost_or_sent_again(), where


def test_an_interrupt_while_a_reply_is_read_loses_no_clean_up_whose_reply_comes_later() -> None:
    """If it loses that reply, the next would be taken for it, and the last for that of the clean-up."""

    def prepare(each: Lent) -> Callable[[], None]:
        each.clean_up_for_bob()
        each.conversation.ask_for(NOBODY, b"inspect")
        each.there.send(b":1\r\n")
        return each.conversation.read

    for each, where in interrupted(prepare):
        assert each.is_lost_or_sent_again(), where


@pytest.mark.parametrize("ends", [Lent.give_up, Lent.dismiss])
def test_an_interrupt_while_a_connection_is_given_up_loses_no_clean_up(ends: Callable[[Lent], None]) -> None:
    def prepare(each: Lent) -> Callable[[], None]:
        each.clean_up_for_bob()
        return lambda: ends(each)

    for each, where in interrupted(prepare):
        assert each.is_lost_or_sent_again(), where


@pytest.mark.parametrize("ends", [Lent.give_up, Lent.dismiss, Lent.drop])
def test_a_vote_on_a_connection_that_is_given_up_is_followed_whatever_interrupts_that(
    ends: Callable[[Lent], None],
) -> None:
    """Or it is told that it can't be."""
    for each, where in interrupted(lambda each: lambda: ends(each)):
        assert each.unanswered == [each.conversation], where
        each.follow()
        assert each.told == [CLEAN_UP in each.arrived()], where


def interrupted(prepare: Callable[[Lent], Callable[[], None]]) -> Iterator[tuple[Lent, str]]:
    """After each interrupt of what `prepare` returns; others have picked up by then what was dropped."""
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        stack.close()  # the one before
        scenes.append(stack.enter_context(lent()))
        action = prepare(scenes[-1])

        def act() -> None:
            with suppress(KeyboardInterrupt):
                action()

        return act, interrupt

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            scenes[-1].drop()
            yield scenes[-1], where
    assert len(scenes) > 20


def test_lost_clean_ups_leave_a_few_at_a_time_until_none_is_left() -> None:
    """The next ones when the node has answered, however many requests are made meanwhile."""
    with lent() as each:
        each.read()
        each.node.lost.extend([b"clean-up %d" % number for number in range(2 * each.node.lost_at_once + 1)])
        left = []
        for _ in range(3):
            for _ in range(2):
                each.pool.put_back(each.pool.borrow(Inspect("job")))
            left.append(len(each.node.lost))
            each.there.send(b":0\r\n" * len(each.conversation.owed))
            each.conversation.read()
        assert left == [each.node.lost_at_once + 1, 1, 0]


def test_a_new_connection_is_not_flooded_with_lost_clean_ups() -> None:
    """A node that could not take them all at once would count as silent, again and again."""
    with lent() as each:
        each.node.lost.extend([b"clean-up %d" % number for number in range(1000)])
        each.loans[0].bundle.talk.talks[0].requests.when_ended(each.conversation)
        assert len(each.conversation.owed) == each.node.lost_at_once
        assert len(each.node.lost) > 900


def test_a_lost_clean_up_stays_if_the_node_does_not_read() -> None:
    with lent() as each:
        with suppress(BlockingIOError):
            while True:
                each.conversation._sock.send(b"x" * 65536)
        each.put_back()
        each.node.lost.extend([b"one", b"two"])
        each.pool.borrow(Inspect("job"))
        assert sorted(each.node.lost) == [b"one", b"two"]


def test_an_interrupt_while_a_clean_up_follows_loses_nothing() -> None:
    """Its owner cleans up once more."""

    def prepare(each: Lent) -> Callable[[], None]:
        each.put_back()
        return each.follow

    for each, where in interrupted(prepare):
        each.follow()
        assert CLEAN_UP in each.arrived(), where


def test_an_interrupt_while_a_dropped_bundle_is_picked_up_loses_no_clean_up() -> None:
    def prepare(each: Lent) -> Callable[[], None]:
        each.follow()
        return each.drop

    for each, where in interrupted(prepare):
        assert CLEAN_UP in each.arrived(), where
        assert not each.pool._loans, where


def test_an_interrupt_while_a_bundle_is_made_breaks_nothing_later() -> None:
    with lent() as each:
        pool, runs = each.pool, 0

        def make() -> None:
            with suppress(KeyboardInterrupt):
                pool._new_loan()

        for _ in at_every_opcode(FOLDER, lambda: (make, interrupt)):
            pool.pick_up()
            assert len(pool._loans) == 1  # of that scene
            runs += 1
        assert runs > 20


def interrupt() -> None:
    raise KeyboardInterrupt


def test_timers_are_called_in_order_however_many_there_are() -> None:
    """Each renewal makes one for each node, which stays until it is due."""
    timers, called, many = Timers(), list[int](), 10_000

    def make() -> None:
        for number in range(many):
            timers.call_later(number // 2 / 1000, called.append, number)
        timers.call_soon(called.append, -1).cancel()

    timers.call_soon(make)
    began = time.process_time()
    timers.run(boottime() + many, makes_up=True)
    assert time.process_time() - began < 1.0
    assert called == list(range(many))
    assert timers.next_at == math.inf
