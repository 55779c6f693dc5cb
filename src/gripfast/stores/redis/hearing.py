"""Threads that wait for pushes read the connections themselves, so that a wake-up costs no other thread's.

If several wait, one of them reads for all (it leads) and names another when it leaves.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from queue import SimpleQueue

from gripfast.core.ports import Granted
from gripfast.guard import Guard
from gripfast.machine import boottime
from gripfast.stores.inboxes import BlockingInbox, Nothing

LOOK_AROUND = 0.5
"""Seconds after which a waiter looks whether still somebody reads: the one who was named may have left."""


class Hearing:
    def __init__(self) -> None:
        self._choosing = Guard()
        self._leader: Callable[[], HearingInbox | None] = _nobody
        self._hearing: dict[int, weakref.ref[HearingInbox]] = {}
        """Who is in `hear`; weak, because an interrupt may leave its entry behind, and the dead must not lead."""

    def can_read(self) -> bool:
        """Otherwise there is nothing to read for anybody, and whoever hears only waits."""
        return True

    def read(self, seconds: float) -> None:
        """Deliver what comes first within so many seconds."""
        raise NotImplementedError

    def hear(self, inbox: HearingInbox, until: float) -> Granted | None:
        try:
            self._hearing[id(inbox)] = weakref.ref(inbox)
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

    def _leads(self, inbox: HearingInbox) -> bool:
        leader = self._leader()
        if leader is None:
            self._leader = weakref.ref(inbox)
        return leader is None or leader is inbox

    def _step_down(self, inbox: HearingInbox) -> None:
        """Name another one who listens, if nobody leads."""
        self._hearing.pop(id(inbox), None)
        if self._leader() is inbox:
            self._leader = _nobody
        if self._leader() is None:
            for other in [ref() for ref in list(self._hearing.values())]:
                if other is not None:
                    other.nudge()
                    return


class HearingInbox(BlockingInbox):
    __slots__ = ("_reading",)

    def __init__(self, hearing: Hearing) -> None:
        self._pushes = SimpleQueue()  # as in the base class, whose call would cost as much as this on the hot path
        self._reading = hearing

    async def hear(self, until: float) -> Granted | None:
        return self._reading.hear(self, until)


def _nobody() -> None:
    return None
