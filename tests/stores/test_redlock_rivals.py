"""A clean-up follows a claim on a bundle that another thread gives back, or gives up, at any instruction."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from gripfast import stores
from gripfast.core.redlock.nodes import Free, Inspect
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.bundle import Bundle, Due, LentServer, Loan, Strand
from gripfast.stores.redlock.pool import LOOKS_MOST, LOST_AT_ONCE, Pool
from stores.redlock_stage import vote_of, wording
from support.switching import at_every_opcode

FOLDER = Path(stores.__file__).parent


class Lent(NamedTuple):
    """To one thread, who has asked nothing yet: a vote of an earlier borrower is still unanswered on it."""

    pool: Pool
    loans: list[Loan]
    """The one, while that thread has it."""
    strand: Strand
    server: LentServer
    node: socket.socket
    told: list[bool]
    """Whether the owner of that vote was told that its clean-up follows."""

    def follow(self) -> None:
        """What that owner does."""
        self.told.append(self.pool.follow([Free("job", "ann")], Bundle(1)) == {0: [True]})

    def vote_again(self) -> None:
        """On the same connection."""
        self.strand.send_after(b"vote", vote_due())

    def put_back(self) -> None:
        self.pool.put_back(self.loans.pop())

    def dismiss(self) -> None:
        """There are too many."""
        self.pool._idle_most = 0
        self.pool.put_back(self.loans.pop())

    def give_up(self) -> None:
        """The node is silent."""
        self.pool.let_go(self.loans[0].bundle, self.strand)
        self.pool.put_back(self.loans.pop())

    def read(self) -> None:
        """The vote is answered just now, and may have come after the clean-up that left elsewhere."""
        self.node.send(b":1\r\n")
        self.strand.read()
        self.pool.put_back(self.loans.pop())

    @property
    def is_followed(self) -> bool:
        return bytes in [type(due.request) for due in self.strand.due]


def vote_due() -> Due:
    return Due(1, 0.0, None, vote_of("ann"), ("ann",))


def pool_of_one(era: object) -> Pool:
    node = SimpleNamespace(era=era, trouble=None, server=LentServer("there", 1.0), lost=deque())
    return Pool([node], wording(), Inboxes(), None, True)  # type: ignore[list-item]


@contextmanager
def lent() -> Iterator[Lent]:
    era = object()
    pool = pool_of_one(era)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loans = [pool._new_loan()]
        strand = Strand(Wire(ours, 1.0), 0, era, 1.0)
        pool.put(loans[0].bundle, strand)
        strand.send_after(b"vote", vote_due())
        yield Lent(pool, loans, strand, pool._nodes[0].server, theirs, [])


@pytest.mark.parametrize("gives", [Lent.put_back, Lent.dismiss, Lent.give_up])
@pytest.mark.parametrize("follows_first", [True, False])
def test_a_clean_up_follows_at_whatever_instruction_the_bundle_is_given_back(
    gives: Callable[[Lent], None], follows_first: bool
) -> None:
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        return (each.follow, lambda: gives(each)) if follows_first else (lambda: gives(each), each.follow)

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            assert scenes[-1].is_followed, where
            assert not scenes[-1].server.unanswered_of("ann"), where
    assert len(scenes) > 20


@pytest.mark.parametrize("follows_first", [True, False])
def test_a_clean_up_that_found_an_unanswered_vote_follows_it_though_it_is_answered_meanwhile(
    follows_first: bool,
) -> None:
    """The vote may have come behind the clean-up that its owner sends elsewhere."""
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        return (each.follow, each.read) if follows_first else (each.read, each.follow)

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            assert scenes[-1].told == [scenes[-1].is_followed], where
            assert not scenes[-1].server.unanswered_of("ann"), where
    assert {True, False} == {told for each in scenes for told in each.told}


def test_a_vote_that_leaves_while_the_last_one_is_cleaned_up_is_noted_or_followed() -> None:
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        scenes.append(stack.enter_context(lent()))
        return scenes[-1].follow, scenes[-1].vote_again

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            each = scenes[-1]
            each.put_back()
            is_behind = type(each.strand.due[-1].request) is bytes
            assert is_behind or each.server.unanswered_of("ann"), where
    assert len(scenes) > 20


def test_a_vote_is_noted_until_it_is_answered_itself() -> None:
    """The reply to an earlier one of its owner, which was cleaned up, says nothing about it."""
    with lent() as each:
        each.put_back()
        each.follow()
        each.vote_again()
        each.node.send(b":1\r\n:1\r\n")
        assert each.strand.read() is not None
        assert each.strand.next() is not None
        assert each.server.unanswered_of("ann") == [each.strand]
        each.node.send(b":1\r\n")
        assert each.strand.read() is not None
        assert not each.server.unanswered_of("ann")


def test_a_vote_that_could_not_leave_takes_no_note_away() -> None:
    with lent() as each:
        due = vote_due()._replace(sent_at=1.0)
        each.strand.send_after(b"vote", due)
        each.strand.withdraw(due)
        assert each.server.unanswered_of("ann") == [each.strand]


def test_a_clean_up_whose_script_was_forgotten_is_sent_again_though_its_connection_was_given_up() -> None:
    with lent() as each:
        each.strand.send_after(b"free", Due(1, 0.0, None, Free("job", "bob")))
        each.give_up()
        each.node.send(b":1\r\n-NOSCRIPT No matching script.\r\n")
        each.pool._close_the_answered()
        assert [b"bob." in clean_up for clean_up in each.pool._lost[0]] == [True]


def test_an_interrupt_while_it_is_read_that_a_script_was_forgotten_loses_no_clean_up() -> None:
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        each.strand.send_after(b"free", Due(1, 0.0, None, Free("job", "bob")))
        each.give_up()
        each.node.send(b":1\r\n-NOSCRIPT No matching script.\r\n")

        def read() -> None:
            with suppress(KeyboardInterrupt):
                each.pool._close_the_answered()

        return read, interrupt

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            for _ in range(LOOKS_MOST + 1):
                scenes[-1].pool._close_the_answered()
            assert any(b"bob." in clean_up for clean_up in scenes[-1].pool._lost[0]), where
    assert len(scenes) > 20


def test_an_interrupt_while_a_reply_is_read_loses_no_clean_up_whose_reply_comes_later() -> None:
    """If it loses that reply, the next would be taken for it, and the last for that of the clean-up."""
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        each.strand.send_after(b"free", Due(1, 0.0, None, Free("job", "bob")))
        each.strand.send_after(b"inspect", Due(1, 0.0, None, Inspect("job")))
        each.give_up()
        each.node.send(b":1\r\n")

        def read() -> None:
            with suppress(KeyboardInterrupt):
                each.pool._close_the_answered()

        return read, interrupt

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            with suppress(BrokenPipeError):  # it was closed
                scenes[-1].node.send(b"-NOSCRIPT No matching script.\r\n:0\r\n")
            for _ in range(LOOKS_MOST + 1):
                scenes[-1].pool._close_the_answered()
            assert any(b"bob." in clean_up for clean_up in scenes[-1].pool._lost[0]), where
    assert len(scenes) > 20


def test_lost_clean_ups_leave_a_few_at_a_time_until_none_is_left() -> None:
    with lent() as each:
        each.put_back()
        each.pool._lost[0].extend([b"clean-up %d" % number for number in range(2 * LOST_AT_ONCE + 1)])
        left = []
        for _ in range(3):
            each.pool.put_back(each.pool.borrow(Inspect("job")))
            left.append(len(each.pool._lost[0]))
        assert left == [LOST_AT_ONCE + 1, 1, 0]


def test_a_lost_clean_up_stays_if_the_node_does_not_read() -> None:
    with lent() as each:
        with suppress(BlockingIOError):
            while True:
                each.strand.sock.send(b"x" * 65536)
        each.put_back()
        each.pool._lost[0].extend([b"one", b"two"])
        each.pool.borrow(Inspect("job"))
        assert list(each.pool._lost[0]) == [b"one", b"two"]


def test_an_interrupt_while_a_clean_up_follows_loses_nothing() -> None:
    """Its owner cleans up once more."""
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        each.put_back()

        def follow() -> None:
            with suppress(KeyboardInterrupt):
                each.follow()

        return follow, interrupt

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            scenes[-1].pool.pick_up()
            scenes[-1].follow()
            assert scenes[-1].is_followed, where
    assert len(scenes) > 20


def test_an_interrupt_while_a_dropped_bundle_is_picked_up_loses_no_clean_up() -> None:
    scenes: list[Lent] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        scenes.append(stack.enter_context(lent()))
        each = scenes[-1]
        each.follow()
        each.loans.clear()

        def pick_up() -> None:
            with suppress(KeyboardInterrupt):
                each.pool.pick_up()

        return pick_up, interrupt

    with ExitStack() as stack:
        for where in at_every_opcode(FOLDER, begin):
            scenes[-1].pool.pick_up()
            assert scenes[-1].is_followed, where
            assert not scenes[-1].pool._loans, where
    assert len(scenes) > 20


def test_an_interrupt_while_a_bundle_is_made_breaks_nothing_later() -> None:
    pools: list[Pool] = []

    def begin() -> tuple[Callable[[], None], Callable[[], None]]:
        pool = pool_of_one(object())
        pools.append(pool)

        def make() -> None:
            with suppress(KeyboardInterrupt):
                pool._new_loan()

        return make, interrupt

    for _ in at_every_opcode(FOLDER, begin):
        pools[-1].pick_up()
        assert not pools[-1]._loans
    assert len(pools) > 20


def interrupt() -> None:
    raise KeyboardInterrupt
