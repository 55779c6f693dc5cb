"""A clean-up follows a claim on a bundle that another thread gives back, or gives up, at any instruction."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from gripfast.core.redlock.nodes import Free
from gripfast.stores import redlock
from gripfast.stores.redis.wire import Wire
from gripfast.stores.redlock.bundle import Bundle, Due, Loan, Strand
from gripfast.stores.redlock.health import Known
from gripfast.stores.redlock.pool import Pool
from stores.redlock_stage import vote_of, wording
from support.switching import at_every_opcode

FOLDER = Path(redlock.__file__).parent


class Lent(NamedTuple):
    """To one thread, who has asked nothing yet: a vote of an earlier borrower is still unanswered on it."""

    pool: Pool
    loan: Loan
    strand: Strand

    def follow(self) -> None:
        """What the owner of that vote does."""
        self.pool.follow([Free("job", "ann")], Bundle(1))

    def put_back(self) -> None:
        self.pool.put_back(self.loan)

    def dismiss(self) -> None:
        """There are too many."""
        self.pool._idle_most = 0
        self.pool.put_back(self.loan)

    def give_up(self) -> None:
        """The node is silent."""
        self.pool.let_go(self.loan.bundle, self.strand)
        self.pool.put_back(self.loan)

    @property
    def is_followed(self) -> bool:
        return [type(due.request) for due in self.strand.due].count(Free) > 0


def pool_of_one(era: object) -> Pool:
    return Pool([SimpleNamespace(era=era, is_up=True)], Known(), wording(), None, True)  # type: ignore[list-item]


@contextmanager
def lent() -> Iterator[Lent]:
    era, vote = object(), vote_of("ann")
    pool = pool_of_one(era)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        loan = pool._new_loan()
        strand = Strand(Wire(ours, 1.0), 0, era, 1.0)
        pool.put(loan.bundle, strand)
        strand.due.append(Due(1, 0.0, None, vote, pool.carry(vote, loan.bundle)))
        yield Lent(pool, loan, strand)


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
