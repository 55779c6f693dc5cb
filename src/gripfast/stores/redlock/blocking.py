"""The blocking driver: bundles of connections, one to each node, that threads borrow, and one more for notifications.

A thread writes to all nodes and reads whoever answers first, until the ballot is decided. The bundle goes back at once:
what is still to come is read, and dropped, by the next one who borrows it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Sequence

from gripfast.core.ports import Inbox
from gripfast.core.redlock.nodes import Ballot, Request
from gripfast.stores.inboxes import Inboxes
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.listening import ListeningInbox
from gripfast.stores.redlock.bundle import Decision
from gripfast.stores.redlock.health import Losses, Node
from gripfast.stores.redlock.notifications import Notifications
from gripfast.stores.redlock.pool import Pool
from gripfast.stores.redlock.protocol import Wording
from gripfast.stores.redlock.shared import poll_on
from gripfast.stores.redlock.talk import Health, NodeTalk


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
        self._notifications = Notifications(self._nodes, self._inboxes, max(dialer.timeout for dialer in dialers))
        self._at_end = at_end

    async def poll(self, requests: Sequence[Request | None], ballot: Ballot, within: float = math.inf) -> None:
        first = requests[0]
        if first is None:
            first = next((request for request in requests if request is not None), None)
            if first is None:
                return
        if self._pool.dropped:
            self._pool.pick_up()
        loan = self._pool.borrow(first)
        bundle = loan.bundle
        try:
            bundle.expect_within(within)
            await poll_on(bundle.talk, requests, ballot, within, Decision(bundle))
            bundle.connect()
        except BaseException:
            bundle.is_dropped = True  # also while the frames of this live on, and with them the loan
            raise
        self._pool.put_back(loan)

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
        self._pool.close()
        self._at_end()
