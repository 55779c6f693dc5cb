"""The blocking driver: bundles of connections, one to each node, that threads borrow, and one more for notifications.

A thread writes to all nodes and reads whoever answers first, until the ballot is decided. The bundle goes back at once:
what is still to come is read, and dropped, by the next one who borrows it.
"""

from __future__ import annotations

import math
import random
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gripfast.core.ports import Inbox
from gripfast.core.redlock.nodes import Ballot, Decided, Request
from gripfast.machine import boottime
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.listening import ListeningInbox
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.unread import Book, Parked
from gripfast.stores.redlock.bundle import Decision, Loan
from gripfast.stores.redlock.health import Losses, Node
from gripfast.stores.redlock.notifications import Notifications
from gripfast.stores.redlock.polls import Poll
from gripfast.stores.redlock.pool import Pool
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.shared import poll_on
from gripfast.stores.redlock.talk import Health, NodeTalk


class _Begun:
    """A release that has left, and that nobody waits for."""

    __slots__ = ("__weakref__", "decided", "late_at", "name", "parked")

    parked: weakref.ref[Parked[Any, Any]]

    def __init__(self, name: str, decided: Decided, late_at: float) -> None:
        self.name = name
        self.decided = decided
        self.late_at = late_at


class BlockingNodes:
    def __init__(
        self,
        dialers: Sequence[Dialer],
        wording: Wording,
        *,
        beside: Sequence[NodeTalk] | None = None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`beside`: where claims were sent whose clean-ups are sent here; then no connection is kept."""
        self.names: Sequence[str] = [dialer.where for dialer in dialers]
        down, losses = set[Health](), Losses()
        self._nodes = [Node(place, dialer, down, losses) for place, dialer in enumerate(dialers)]
        for node in self._nodes:
            node.belongs_to(self)
        self._inboxes = Inboxes()
        self._pool = Pool(self._nodes, wording, self._inboxes, down, losses, beside)
        self._timeout = max(dialer.timeout for dialer in dialers)
        self._late: Book[Loan, _Begun] = Book()
        self._unread = self._late.by_name
        self._notifications = Notifications(self._nodes, self._inboxes, self._timeout)
        self._at_end = at_end

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        first = requests[0]
        if first is None:
            first = next((request for request in requests if request is not None), None)
            if first is None:
                return
        if self._pool.dropped:
            self._pool.pick_up()
        parked = None
        if self._unread:
            parked = self._late.take_for(getattr(first, "name", None), self._timeout, self._pool.has_idle)
        loan = self._pool.borrow(first) if parked is None else parked.connection
        bundle = loan.bundle
        try:
            bundle.expect_within(within)
            await poll_on(bundle.talk, requests, ballot, within, Decision(bundle))
            bundle.connect()
        except BaseException:
            bundle.is_dropped = True  # also while the frames of this live on, and with them the loan
            if parked is not None:
                self._strike(parked, is_lost=True)
            raise
        if parked is None:
            self._pool.put_back(loan)
        else:
            self._put_back(parked)

    # -- releases whose answers nobody waits for (`stores/redis/unread.py`) ---------------------------------------

    def begin(self, requests: Sequence[Request | None], ballot: Ballot, decided: Decided) -> bool:
        """On a bundle that has all the connections that it needs, and is parked then."""
        first = next(request for request in requests if request is not None)
        begun = _Begun(getattr(first, "name", ""), decided, boottime() + self._timeout)
        parked = self._late.take_to_send(begun.name, is_other_idle=True)
        if parked is None:
            if self._late.is_full:
                return False
            parked = Parked(self._pool.borrow(first))
        bundle = parked.connection.bundle
        pairs = zip(bundle.talk.talks, requests, strict=True)
        if not all(talk.is_up for talk, request in pairs if request is not None):
            self._put_back(parked)
            return False
        try:
            bundle.expect_within(math.inf)
            asked = len(requests) - requests.count(None)
            bundle.talk.poll(requests, Poll(ballot, asked, decided), math.inf, asked)
        except BaseException:
            bundle.is_dropped = True
            self._strike(parked, is_lost=True)
            raise
        self._late.has_left(parked, begun)
        return True

    async def read_late(self, within: float = 0.0) -> bool:
        until = boottime() + within
        for parked in self._late.take_each():
            bundle = parked.connection.bundle
            while not all(begun.decided.done() for begun in parked.unread) and bundle.hear_until(until):
                pass
            self._put_back(parked)
        return bool(self._unread)

    def _put_back(self, parked: Parked[Loan, _Begun]) -> None:
        self._strike(parked)
        if parked.unread:
            self._late.put_back(parked)
        else:
            self._pool.put_back(parked.connection)

    def _strike(self, parked: Parked[Loan, _Begun], is_lost: bool = False) -> None:
        """What is decided, or has waited for too long, or was lost: then a clean-up follows."""
        now = boottime()
        for begun in list(parked.unread):
            if is_lost or begun.decided.done() or begun.late_at < now:
                if not begun.decided.done():
                    begun.decided.set_result(TimeoutError())
                self._late.strike(parked, begun)

    # --------------------------------------------------------------------------------------------------------------

    def send(self, request: Request, nodes: Iterable[int]) -> None:
        if self._pool.dropped:
            self._pool.pick_up()
        loan = self._pool.borrow(request)
        bundle = loan.bundle
        try:
            bundle.expect_within(math.inf)
            bundle.talk.send(request, nodes, in_full=True)
            bundle.connect()
        except BaseException:
            bundle.is_dropped = True
            raise
        self._pool.put_back(loan)

    def inbox(self) -> Inbox:
        return ListeningInbox(self._notifications)

    def hears(self, owner: str, inbox: Inbox) -> bool:
        self._inboxes.add(owner, inbox)
        return self._notifications.is_heard

    async def listen(self) -> None:
        self._notifications.open()

    def wall_us(self) -> int:
        return time.time_ns() // 1000

    def chance(self) -> float:
        return random.random()

    def shut(self) -> None:
        self._notifications.close()

    async def close(self) -> None:
        self._notifications.close()
        for node in self._nodes:
            node.close()
        for loan in self._late.close():
            self._pool.put_back(loan)
        self._pool.close()
        self._at_end()
