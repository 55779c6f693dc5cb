"""Every owner id that may have something at the engine, from before its claim leaves until an answer confirms that
nothing is left.

The ledger holds leases weakly. When one dies without a confirmed release (a dropped result, an interrupt, a cancelled
task) its mark is put on a queue, by the interpreter itself and in C: no lock, no I/O, no frame that could be
interrupted. The reader of that queue releases what the owner may have.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType

from gripfast.core.kept import Keep, Keeping
from gripfast.core.lease import LeaseState, Share, Want

Entry = bool | tuple[CodeType, int]
"""How the caller's code acquires a lease: True in a `with` block, else where it calls acquire(), if that is known."""


class Mark(weakref.ref[LeaseState]):
    """One owner id in the ledger; calling it gives the lease, or None when nobody can use it any more."""

    __slots__ = (
        "entry", "granted", "is_unread", "keeping", "ledger", "may_be_there", "owner", "sent", "ttl", "want",
    )  # fmt: skip

    ledger: Ledger
    want: Want
    owner: str
    ttl: float
    sent: float
    """When the last request left that the engine may remember this owner for, by `ttl` or by its queue position."""
    may_be_there: bool
    """A request of this owner may have left this machine, so the engine may know the owner."""
    granted: bool
    """It is a lease that someone may be using; no longer once it is being released."""
    entry: Entry
    """If the lease of a `with` block is dropped, an interrupt or the end of a loop has done it: there is nothing that
    the caller should have written differently. Otherwise the log says where it was acquired."""
    keeping: Keeping | None
    """What its clean-up does; None: it is just released. Set when the caller believes in it."""
    is_unread: bool
    """Its release has left, and the answer to that counts: nobody else gives it back (`core/lazy.py`)."""

    @property
    def name(self) -> str:
        return self.want.name

    @property
    def key(self) -> str:
        return self.want.key

    @property
    def share(self) -> Share | None:
        return self.want.share

    def keep(self, now: float) -> Keep | None:
        return None if self.keeping is None else self.keeping.now(self.owner, now)


class Ledger:
    def __init__(self, drop: Callable[[Mark], None]) -> None:
        self._drop = drop
        self._marks: dict[str, Mark] = {}

    def __len__(self) -> int:
        return len(self._marks)

    def enter(self, state: LeaseState, entry: Entry = False) -> Mark:
        mark = Mark(state, self._drop)
        mark.ledger = self
        mark.want = state.want
        owner = mark.owner = state.owner
        mark.ttl = state.ttl
        mark.sent = 0.0
        mark.may_be_there = mark.granted = mark.is_unread = False
        mark.entry = entry
        mark.keeping = None
        self._marks[owner] = mark
        return mark

    def inherit(self, state: LeaseState, heir: LeaseState) -> None:
        """The lease is being released, and nobody waits for the answer. From now on the heir stands for it: when that
        dies, what the owner has is released, whether the lease object lives on or not. The caller has made it: it
        must outlive this frame if an interrupt ends that."""
        former = self._marks.get(state.owner)
        mark = Mark(heir, self._drop)
        mark.ledger, mark.want, mark.owner, mark.ttl = self, state.want, state.owner, state.ttl
        mark.sent = 0.0 if former is None else former.sent
        mark.may_be_there = mark.is_unread = True
        mark.granted, mark.entry, mark.keeping = False, True, None
        self._marks[state.owner] = mark  # last: it takes the place of the former one in one step

    def is_unread(self, owner: str) -> bool:
        mark = self._marks.get(owner)
        return mark is not None and mark.is_unread

    def confirm_gone(self, owner: str) -> None:
        self._marks.pop(owner, None)

    def enter_block(self, owner: str) -> None:
        """From now on it is the lease of a `with` block."""
        mark = self._marks.get(owner)
        if mark is not None:
            mark.entry = True

    def rename(self, state: LeaseState, owner: str) -> None:
        """The lease gets another owner id. Until it is confirmed that the engine does not know the former one any more,
        both are released if the lease is dropped; it counts as one lease."""
        former = self._marks.get(state.owner)
        state.owner = owner
        mark = self.enter(state)
        mark.may_be_there = mark.granted = True
        mark.keeping = None if former is None else former.keeping
        if former is not None:
            former.granted = False

    def keep(self, owner: str, keeping: Keeping) -> None:
        """From now on every clean-up of it does this."""
        mark = self._marks.get(owner)
        if mark is not None:
            mark.keeping = keeping

    def kept(self, owner: str, now: float) -> Keep | None:
        """What its clean-up does now."""
        mark = self._marks.get(owner)
        return None if mark is None else mark.keep(now)

    def knows(self, mark: Mark) -> bool:
        return self._marks.get(mark.owner) is mark

    def is_given_back(self, owner: str) -> bool:
        """Or about to be, by somebody else than whoever releases it: the client is being closed."""
        mark = self._marks.get(owner)
        return mark is None or not mark.granted

    def abandon(self, state: LeaseState) -> None:
        """Have it released although the lease object may live on; unless the engine can't know it."""
        mark = self._marks.get(state.owner)
        if mark is None:
            return
        mark.granted = mark.is_unread = False
        if mark.may_be_there:
            self._drop(mark)
        else:
            self.confirm_gone(state.owner)

    def set_aside(self, state: LeaseState) -> None:
        """Nobody renews it any more, and it is not told of again. It is released when the lease object dies."""
        mark = self._marks.get(state.owner)
        if mark is not None:
            mark.granted = False

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
