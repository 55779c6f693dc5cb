"""How the asyncio colour gets a connection: one try for all who need it, on a thread, with a deadline.

A try that hangs (a resolver may do so for as long as it likes) is given up; its thread ends when it can, and whatever
it brings then is closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gripfast.bounded import Call
from gripfast.errors import ClientClosed, GripfastError
from gripfast.stores.redis.dial import Dialer
from gripfast.stores.redis.faults import Fault, LinkDown, cut
from gripfast.stores.redis.wire import Wire, close_the_dead

Plan = tuple[Callable[[], Wire], Callable[[Wire], Any]]
"""How to make a connection: what is done on a thread, and then on the loop."""


class Line:
    """One connection, made when it is needed, for everyone who needs it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, dialer: Dialer, plan: Callable[[Dialer], Plan]) -> None:
        self._loop = loop
        self._dialer = dialer
        self._plan = plan
        self.dialing: asyncio.Future[Any] | None = None
        self.latest: Any = None
        """Open, or closed since."""
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False

    @property
    def wire(self) -> Any:
        wire = self.latest
        return wire if wire is not None and wire.is_open else None

    def start(self) -> asyncio.Future[Any]:
        """What comes of it is a wire, a Fault or a GripfastError; it is everyone's, and not to be cancelled."""
        if self._is_closed:
            raise ClientClosed
        if self.dialing is not None:
            return self.dialing
        dialing: asyncio.Future[Any] = self._loop.create_future()
        try:
            self.dialing = dialing
            self._begin(dialing)
        except TimeoutError as error:
            self._end(dialing, self._dialer.late(error))
        except BaseException as error:  # an interrupt: nobody may wait for what was not begun
            self._end(dialing, cut(self._dialer.where, OSError(str(error))))
            raise
        return dialing

    def _begin(self, dialing: asyncio.Future[Any]) -> None:
        make, made = self._plan(self._dialer)
        call = self._dialer.calls.begin(make, lambda call: self._tell(dialing, call, made))
        try:
            self._timer = self._loop.call_later(self._dialer.timeout, self._settle, dialing, call, made)
        except BaseException:
            call.give_up()
            raise

    async def open(self) -> Any:
        """Whoever is cancelled here takes nothing from the others."""
        result = await asyncio.shield(self.start())
        if isinstance(result, Fault):
            raise LinkDown(result.copy())
        if isinstance(result, GripfastError):
            raise result
        return result

    def close(self) -> None:
        self._is_closed = True
        if self.wire is not None:
            self.wire.end(None)

    def drop(self) -> None:
        """The loop is closed."""
        self._is_closed = True
        if self.latest is not None:
            self.latest.close()

    def _tell(self, dialing: asyncio.Future[Any], call: Call[Wire], made: Callable[[Wire], Any]) -> None:
        """On the call's thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle, dialing, call, made)
        except RuntimeError:  # the loop is closed
            call.give_up()
        close_the_dead()

    def _settle(self, dialing: asyncio.Future[Any], call: Call[Wire], made: Callable[[Wire], Any]) -> None:
        """It has ended, or its time is over."""
        if dialing.done():
            return
        try:
            base = call.outcome()
        except LinkDown as down:
            self._end(dialing, down.fault)
        except TimeoutError as error:
            self._end(dialing, self._dialer.late(error))
        except Exception as error:  # whatever it is, somebody waits
            self._end(dialing, cut(self._dialer.where, error))
        else:
            self._use(dialing, base, made)

    def _use(self, dialing: asyncio.Future[Any], base: Wire, made: Callable[[Wire], Any]) -> None:
        try:
            self._end(dialing, self._made(base, made))
        except BaseException as error:  # an interrupt: nobody may wait for it
            if not dialing.done():
                self._end(dialing, cut(self._dialer.where, OSError(str(error))))
            raise

    def _made(self, base: Wire, made: Callable[[Wire], Any]) -> Any:
        try:
            if self._is_closed:
                raise ClientClosed
            self.latest = made(base)
        except GripfastError as error:
            base.close()
            return error
        return self.latest

    def _end(self, dialing: asyncio.Future[Any], outcome: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.dialing = self._timer = None
        dialing.set_result(outcome)
