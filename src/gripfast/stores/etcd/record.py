"""What a client knows about a key of its own: that of a holder, or of a waiter."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from gripfast.core.ports import Granted
from gripfast.stores.etcd import protocol
from gripfast.stores.etcd.leases import Lease
from gripfast.stores.etcd.messages import TxnRequest, TxnResponse
from gripfast.stores.etcd.protocol import Busy, Entry, Gone, Known, Place, Waits, Won
from gripfast.stores.etcd.watching import Watching

LATE = 0.4
"""Seconds after its first clean-up in which a claim that nobody waits for any more may take effect: so long the
clean-up is repeated. If a member did not answer in time, or not within so long before the claim was given up, it is
repeated as long as the lease lives that the claim named. Whatever takes effect still later lives for the rest of that
lease: one ttl at most."""


@dataclass(slots=True, eq=False)
class Record:
    name: str
    owner: str
    queue: bytes
    key: bytes
    epoch: int
    """Of the cluster (`meeting.py`)."""
    found: dict[str, Any]
    """What the key's value tells."""
    place: Place | None = None
    """None until it is known that there is a key."""
    token: int = 0
    """0 while it waits."""
    lease: Lease | None = None
    """The one that the key hangs on."""
    is_late: bool = False
    """A claim got no answer, and may still take effect."""
    late_until: float = 0.0
    """Until then, if a member did not answer."""
    cleaned_at: float = 0.0
    """When its key was deleted first."""
    is_adopted: bool = False
    """The key was another owner's before, and may still be (`keeping.py`)."""
    is_detaching: bool = False
    """It was requested, and is not confirmed. Nobody has the text, so a key that is detached is still this owner's."""
    is_cleaned_up: bool = False
    """It is taken back all the same: a confirmation comes too late."""
    watching: Watching = field(default_factory=Watching)
    watching_itself: Watching | None = None
    """Of a semaphore's waiter: a resize may delete its key."""

    @property
    def ends(self) -> float:
        """If the key is gone before this moment, somebody has deleted it."""
        return 0.0 if self.lease is None else self.lease.ends

    def may_take_effect(self, now: float) -> bool:
        """After a clean-up: it is to be repeated."""
        self.cleaned_at = self.cleaned_at or now
        return self.is_late and now < max(self.cleaned_at + LATE, self.late_until)

    def value(self, **more: Any) -> bytes:
        return protocol.write(self.found, **more)

    def held(self, ttl: float) -> bytes:
        """The value of a holder's key after the write that granted it."""
        return protocol.write(self.found, token=self.token, ttl=ttl)

    # Claims -----------------------------------------------------------------------------------------------------------

    def claim(self, lease: Lease, joins: bool) -> TxnRequest:
        """What to send next. `joins`: a waiter's key is created if need be."""
        if self.place is None or not self.token:
            self.found["since"] = int(time.time() * 1_000_000)
        if self.place is None:
            value = self.value()
            waiting = protocol.waiting(value) if joins else None
            return protocol.claim(self.queue, self.key, value, waiting, lease.id)
        if self.token:
            return protocol.move(self.place, self.held(self.found["ttl"]), lease.id)
        return protocol.advance(self.place, self.queue, self.value(), self.value(waits=True), lease.id)

    def read(self, answer: TxnResponse, lease: Lease) -> Won | Waits | Busy | Known | Gone:
        """The answer to that."""
        if self.place is None:
            return protocol.read_claim(answer, self.key)
        if not self.token:
            return protocol.read_advance(answer, self.place)
        moved = protocol.read_move(answer, self.place, answer.header.revision, lease.id, self.owner)
        if isinstance(moved, Place):
            return Won(moved.mod)
        return Gone() if moved is None else Known(moved)

    def won(self, revision: int, lease: Lease, ttl: float, sent: float) -> Granted:
        """The first write that grants has the token."""
        create = revision if self.place is None else self.place.create
        self.place, self.lease = Place(self.key, create, revision), lease
        self.token = self.token or revision
        self.stop_watching()
        return Granted(self.token, ttl, lease.date(ttl, sent))

    def stop_watching(self) -> None:
        self.watching.stop()
        if self.watching_itself is not None:
            self.watching_itself.stop()

    def waits(self, place: Place, lease: Lease) -> None:
        self.place, self.lease = place, lease

    def know(self, mine: Entry) -> None:
        """What a request has done that got no answer."""
        self.place = protocol.place_of(mine)
        if not mine.waits:
            self.token = mine.token
            self.found = {name: value for name, value in mine.found.items() if name != "token"} or self.found

    def gone(self) -> None:
        """The key is to be created anew."""
        self.place, self.token, self.lease = None, 0, None
