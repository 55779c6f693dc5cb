"""Every owner id that may have something at the engine, from before its claim leaves until an answer confirms that
nothing is left.

The ledger holds leases weakly. When one dies without a confirmed release (a dropped result, an interrupt, a cancelled
task) its mark is put on a queue, by the interpreter itself and in C: no lock, no I/O, no frame that could be
interrupted. Whoever reads that queue gives the owner's things back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from gripfast.core.lease import LeaseState, Share


class Mark(weakref.ref[LeaseState]):
    """One owner id in the ledger; calling it gives the lease, or None when nobody can use it any more."""

    __slots__ = ("granted", "in_block", "key", "ledger", "may_be_there", "name", "owner", "sent", "ttl")

    ledger: Ledger
    name: str
    key: str
    owner: str
    ttl: float
    sent: float
    """When the last request left that the engine may remember this owner for, by `ttl` or by its place in line."""
    may_be_there: bool
    """A request of this owner may have left this machine, so the engine may know the owner."""
    granted: bool
    """It is a lease that someone may be using; no longer once it is being given back."""
    in_block: bool
    """It is the lease of a `with` block. If that is dropped, an interrupt or the end of a loop has done it: there is
    nothing that the caller should have written differently."""
    share: Share | None = None
    """Of permits (`ShareMark`). A lock must not pay for it: not even for an attribute that is set to None."""


class ShareMark(Mark):
    __slots__ = ("share",)


NewMark = Callable[[LeaseState, Callable[[Mark], None]], Mark]


class Ledger:
    def __init__(self, drop: Callable[[Mark], None]) -> None:
        self._drop = drop
        self._marks: dict[str, Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def enter(self, state: LeaseState, in_block: bool = False, new_mark: NewMark = Mark) -> Mark:
        mark = new_mark(state, self._drop)
        mark.ledger = self
        mark.name = state.name
        mark.key = state.key
        mark.owner = state.owner
        mark.ttl = state.ttl
        mark.sent = 0.0
        mark.may_be_there = False
        mark.granted = False
        mark.in_block = in_block
        self._marks[state.owner] = mark
        return mark

    def enter_share(self, state: LeaseState, share: Share, in_block: bool) -> Mark:
        def new_mark(state: LeaseState, drop: Callable[[Mark], None]) -> Mark:
            mark = ShareMark(state, drop)
            mark.share = share  # before the ledger has it: an interrupt may strike here
            return mark

        return self.enter(state, in_block, new_mark)

    def confirm_gone(self, owner: str) -> None:
        self._marks.pop(owner, None)

    def enter_block(self, owner: str) -> None:
        """From now on it is the lease of a `with` block."""
        mark = self._marks.get(owner)
        if mark is not None:
            mark.in_block = True

    def rename(self, state: LeaseState, owner: str) -> None:
        """The lease gets another owner id. Until it is confirmed that the engine does not know the former one any more,
        both are given back if the lease is dropped; it counts as one lease."""
        former = self._marks.get(state.owner)
        state.owner = owner
        mark = self.enter(state)
        mark.may_be_there = mark.granted = True
        if former is not None:
            former.granted = False

    def knows(self, mark: Mark) -> bool:
        return self._marks.get(mark.owner) is mark

    def is_given_back(self, owner: str) -> bool:
        """Or about to be, by somebody else than whoever releases it: the client is being closed."""
        mark = self._marks.get(owner)
        return mark is None or not mark.granted

    def abandon(self, state: LeaseState) -> None:
        """Have it given back although the lease object may live on; unless the engine can't know it."""
        mark = self._marks.get(state.owner)
        if mark is None:
            return
        mark.granted = False
        if mark.may_be_there:
            self._drop(mark)
        else:
            self.confirm_gone(state.owner)

    def date(self, owner: str, sent: float, ttl: float) -> None:
        """A request is about to leave after which the engine remembers the owner for that long."""
        mark = self._marks.get(owner)
        if mark is not None:
            mark.sent, mark.ttl = sent, max(ttl, mark.ttl)

    def marks(self) -> list[Mark]:
        return list(self._marks.values())

    def states(self) -> list[LeaseState]:
        """Everything that someone may still use, granted or being asked for."""
        return [state for mark in self.marks() if (state := mark()) is not None]

    def lease(self, owner: str) -> LeaseState | None:
        """The granted lease of this owner, if someone can still use it."""
        mark = self._marks.get(owner)
        return mark() if mark is not None and mark.granted else None

    def leases(self) -> list[LeaseState]:
        """The granted leases that someone can still use."""
        return [state for mark in self.marks() if mark.granted and (state := mark()) is not None]
