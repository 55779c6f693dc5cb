"""How asyncio gets a connection: on a thread, with a deadline.

A try that hangs (a resolver may do so for as long as it likes) is given up; its thread ends when it can, and whatever
it brings then is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from gripfast.bounded import Call
from gripfast.stores.faults import Fault
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.shared import Opening
from gripfast.stores.redis.wire import Wire

Plan = tuple[Callable[[], Wire], Callable[[Wire], Any]]
"""How to make a connection: what is done on a thread, and then on the loop."""


class AioOpening(Opening):
    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer, plan: Callable[[], Plan]) -> None:
        super().__init__(dialer.where, loop.create_future)
        self._loop = loop
        self._dialer = dialer
        self._plan = plan
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, dialing: asyncio.Future[Any]) -> None:
        make, use = self._plan()
        call = self._dialer.calls.begin(make, lambda call: self._tell(dialing, call, use))
        try:
            self._timer = self._loop.call_later(self._dialer.timeout, self.settle, dialing, call, use)
        except BaseException:
            call.give_up()
            raise

    def shield(self, dialing: asyncio.Future[Any]) -> Awaitable[Any]:
        return asyncio.shield(dialing)

    def too_late(self, error: TimeoutError) -> Fault:
        return self._dialer.late(error)

    def end(self, dialing: asyncio.Future[Any], outcome: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().end(dialing, outcome)

    def _tell(self, dialing: asyncio.Future[Any], call: Call[Wire], use: Callable[[Wire], Any]) -> None:
        """On the call's thread."""
        try:
            self._loop.call_soon_threadsafe(self.settle, dialing, call, use)
        except RuntimeError:  # the loop is closed
            call.give_up()
