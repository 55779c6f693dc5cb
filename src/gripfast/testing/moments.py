"""Who waits for which moment of the clock, so that a clock that is moved can wake them, and knows where to stop.

Waiters for locks and retry pauses of a World are here while they wait. A waiter is *awake* from its claim, or since it
was woken, until it waits or has its answer: meanwhile the clock is not moved. So each waiter sees its own moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from gripfast.interrupts.living import Living
from gripfast.machine import boottime

LOOK = 0.02
"""Seconds between two looks for waiters that ended without saying so: an interrupt, a cancelled task."""


class Moments:
    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waits: dict[object, tuple[float, Callable[[], object]]] = {}
        self._awake: Living[object] = Living()
        self._timers: list[tuple[float, Callable[[], None]]] = []

    @contextlib.contextmanager
    def waits(self, who: object, until: float, wake: Callable[[], object]) -> Iterator[None]:
        """While the block runs, it waits. It is awake afterwards if it was woken."""
        with self._changed:
            self._awake.discard(who)
            self._waits[who] = (until, wake)
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._waits.pop(who, None)

    def is_awake(self, who: object) -> None:
        """It is about to wait, or to have its answer."""
        with self._changed:
            self._awake.add(who)

    def is_over(self, who: object) -> None:
        """It has its answer."""
        with self._changed:
            self._awake.discard(who)
            self._changed.notify_all()

    def add_timer(self, moment: float, ring: Callable[[], None]) -> Callable[[], None]:
        """Call `ring` at this moment of the clock, if the clock is moved to it. What is returned takes it back."""
        timer = (moment, ring)
        self._timers.append(timer)

        def cancel() -> None:
            with contextlib.suppress(ValueError):
                self._timers.remove(timer)

        return cancel

    def following(self, now: float) -> list[float]:
        """The moments that are still to come."""
        with self._changed:
            return [moment for moment, _ in (*self._waits.values(), *self._timers) if moment > now]

    def wake(self) -> None:
        """Everybody: whose moment has not come waits again, for the rest."""
        now = boottime()
        for timer in [timer for timer in self._timers if timer[0] <= now]:
            with contextlib.suppress(ValueError):
                self._timers.remove(timer)
                timer[1]()
        with self._changed:
            waits, self._waits = self._waits, {}
            for who in waits:
                self._awake.add(who)
        for _, wake in waits.values():
            wake()

    def settle(self, seconds: float) -> bool:
        """True as soon as nobody is awake. Not on an event loop, whose tasks could not go on meanwhile."""
        ends = time.monotonic() + seconds
        with self._changed:
            while self._awake and time.monotonic() < ends:
                self._changed.wait(LOOK)
            return not self._awake

    async def settle_async(self, seconds: float) -> bool:
        ends = time.monotonic() + seconds
        while self._awake and time.monotonic() < ends:
            await asyncio.sleep(0)
        return not self._awake

    def await_waiter(self, is_over: Callable[[], bool]) -> bool:
        """Until somebody waits, and nobody is awake; False when it is over before that."""
        with self._changed:
            while not is_over():
                if self._waits and not self._awake:
                    return True
                self._changed.wait(LOOK if self._awake else None)
        return False

    def look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()


moments = Moments()
"""Of this process: it has one clock."""
