"""Threads that wait for notifications read the connections themselves, so that a wake-up costs no other thread's.

If several wait, one of them reads for all (it leads) and names another when it leaves.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable

from gripfast.core.ports import Granted
from gripfast.interrupts.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox, Nothing

LOOK_AROUND = 0.5
"""Seconds after which a waiter looks whether still somebody reads: the one who was named may have left."""


class Listening:
    def __init__(self) -> None:
        self._choosing = Guard()
        self._leader: Callable[[], ListeningInbox | None] = _nobody
        self._waiting: dict[int, weakref.ref[ListeningInbox]] = {}
        """Who is in `wait`; weak, because an interrupt may leave its entry behind, and the dead must not lead."""

    def can_read(self) -> bool:
        """Otherwise there is nothing to read for anybody, and whoever waits only waits."""
        return True

    def read(self, seconds: float) -> None:
        """Deliver what comes first within so many seconds."""
        raise NotImplementedError

    def wait(self, inbox: ListeningInbox, until: float) -> Granted | None:
        try:
            self._waiting[id(inbox)] = weakref.ref(inbox)
            while isinstance(item := inbox.take(0.0), Nothing):
                left = until - boottime()
                if left <= 0.0:
                    return None
                if self.can_read() and self._choosing.run(self._leads, inbox):
                    self.read(left)
                elif not isinstance(item := inbox.take(min(left, LOOK_AROUND)), Nothing):
                    return item
            return item
        finally:
            self._step_down(inbox)

    def _leads(self, inbox: ListeningInbox) -> bool:
        leader = self._leader()
        if leader is None:
            self._leader = weakref.ref(inbox)
        return leader is None or leader is inbox

    def _step_down(self, inbox: ListeningInbox) -> None:
        """Name another one who waits, if nobody leads."""
        self._waiting.pop(id(inbox), None)
        if self._leader() is inbox:
            self._leader = _nobody
        if self._leader() is None:
            for other in [ref() for ref in list(self._waiting.values())]:
                if other is not None:
                    other.nudge()
                    return


class ListeningInbox(BlockingInbox):
    __slots__ = ("listening",)

    def __init__(self, listening: Listening) -> None:
        # As in the base class, whose call would cost as much as this on the hot path.
        self._items, self._bell = deque(), None
        self.listening = listening

    async def hear(self, until: float) -> Granted | None:
        return self.listening.wait(self, until)


def _nobody() -> None:
    return None
