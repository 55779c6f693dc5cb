"""Every owner id that may have something at the engine, from before its claim leaves until an answer confirms that
nothing is left.

The ledger holds leases weakly. When one dies without a confirmed release (a dropped result, an interrupt, a cancelled
task) its mark is put on a queue, by the interpreter itself and in C: no lock, no I/O, no frame that could be
interrupted. Whoever reads that queue gives the owner's things back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

from gripfast.core.lease import LeaseState


class Mark(weakref.ref[LeaseState]):
    """One owner id in the ledger; calling it gives the lease, or None when nobody can use it any more."""

    __slots__ = ("granted", "key", "ledger", "may_be_there", "name", "owner", "sent", "ttl")

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


class Ledger:
    def __init__(self, drop: Callable[[Mark], None]) -> None:
        self._drop = drop
        self._marks: dict[str, Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def enter(self, state: LeaseState) -> Mark:
        mark = Mark(state, self._drop)
        mark.ledger = self
        mark.name = state.name
        mark.key = state.key
        mark.owner = state.owner
        mark.ttl = state.ttl
        mark.sent = 0.0
        mark.may_be_there = False
        mark.granted = False
        self._marks[state.owner] = mark
        return mark

    def confirm_gone(self, owner: str) -> None:
        self._marks.pop(owner, None)

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
