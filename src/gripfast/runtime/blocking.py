"""The blocking runtime: recipes run to their end on the calling thread.

Its ports are coroutines that block and never suspend, so `drive` needs one `send(None)`. Two threads serve a client:
the watchdog talks to the engine, the notices look at the clock and never do I/O, so a slow server can't delay them.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from queue import Empty
from typing import TYPE_CHECKING, Any, TypeVar

from gripfast.core import closing
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Mark
from gripfast.core.notice import Notices
from gripfast.core.ports import Store, Taken, Unreachable
from gripfast.core.upkeep import Errand, Extend, Upkeep, say_dropped
from gripfast.errors import Reason
from gripfast.interrupts.living import Living
from gripfast.machine import boottime
from gripfast.runtime import waits
from gripfast.runtime.callbacks import Callbacks, run_on_lost
from gripfast.runtime.parts import EXIT_PATIENCE, LOOK_AT_LEAST, Patience, make_env
from gripfast.runtime.ticker import Ticker
from gripfast.timed_queue import TimedQueue

if TYPE_CHECKING:
    from gripfast.runtime.observers import Observers

_log = logging.getLogger("gripfast.lease")

T = TypeVar("T")


def drive(recipe: Coroutine[Any, Any, T]) -> T:
    """Run a recipe whose ports block: it ends in one step, or something suspended that must not."""
    try:
        recipe.send(None)
    except StopIteration:
        # Not `as done`: an interrupt before that name is deleted would leave a cycle, and in it the lease.
        return sys.exception().value  # type: ignore[union-attr, no-any-return]
    recipe.close()
    raise RuntimeError(f"{recipe!r} suspended in the blocking runtime")


class BlockingRuntime:
    def __init__(self, store: Store, patience: Patience, client: object, observers: Observers | None = None) -> None:
        self.pid = os.getpid()
        self.watchdog: Ticker[Errand] = Ticker("gripfast-watchdog", self._look_after, self._end)
        self.watchdog.work_for(client)
        self._callbacks = Callbacks("gripfast-on-lost")
        self.notices: Ticker[None] = Ticker("gripfast-notices", self._tell, self._callbacks.run_waiting)
        drop = self.watchdog.queue.put
        self.env = make_env(store, patience, drop, _pause, self._announce, self._watch, observers)
        self._observers = observers
        self._waits = waits.Waits()
        self._upkeep = Upkeep(self.env, self._say_dropped)
        self._losses = Notices(self.env)
        self.env.look_at = self.watchdog.wake_before
        self.is_running = False
        _runtimes.add(self)

    def start(self) -> None:
        self.watchdog.start()
        self.notices.start()
        self.is_running = True

    def extend(self, state: LeaseState, ttl: float) -> Unreachable | None:
        """Have the watchdog renew it now; the reply, or None with the lease over."""
        reply: TimedQueue[Unreachable | None] = TimedQueue()
        self.watchdog.queue.put(Extend(state, ttl, reply.put))
        while (left := state.remaining(boottime())) > 0.0:
            try:
                return reply.get(min(left, LOOK_AT_LEAST))
            except Empty:
                continue
        return None

    def stop(self, within: float = EXIT_PATIENCE) -> None:
        """Give everything back, end the threads; never longer than `within`."""
        self.stop_soon()
        self.join(within)

    def stop_soon(self) -> None:
        if self.pid == os.getpid():
            if self._observers is not None:
                self._observers.client_is_being_closed()
            closing.begin(self.env)
            self.watchdog.stop()

    def join(self, within: float) -> None:
        if self.pid == os.getpid():
            ends = boottime() + within
            if not self.watchdog.join(within):
                self._end()
            self.notices.join(ends - boottime())

    def settle(self, seconds: float) -> list[str]:
        """For tests that move the clock: everything that is due is done when this returns; else which threads are still
        busy. The watchdog twice: what is lost is given back."""
        tickers: tuple[Ticker[Any], ...] = (self.watchdog, self.notices, self.watchdog)
        late = [ticker.name for ticker in tickers if not ticker.settle(seconds)]
        if not self._callbacks.settle(seconds):
            late.append(self._callbacks.name)
        if self._observers is not None and not self._observers.settle(seconds):
            late.append("gripfast-observers")
        return late

    def _end(self) -> None:
        """The last thing the watchdog does, whether the client was closed or just dropped."""
        self.notices.stop()
        self.notices.join(LOOK_AT_LEAST)  # what is lost by now is told as a loss
        for state in self.env.ledger.states():
            state.finish("released")
            state.tell()
        if self._observers is not None:
            self._observers.stop()
        drive(self._upkeep.give_all_back())
        drive(self.env.store.close())
        if self._observers is not None:
            self._observers.join()

    def _announce(self, state: LeaseState) -> None:
        looks_at = self._losses.announce(state)
        self._upkeep.renews_at.announce(state.renew_at)
        if looks_at < self.notices.wakes_at:
            self.notices.wake()
        if state.renew_at < self.watchdog.wakes_at:
            self.watchdog.wake()

    def _look_after(self, errands: Sequence[Errand]) -> float:
        return drive(self._upkeep.round(errands))

    def _tell(self, _: Sequence[None]) -> float:
        return min(self._losses.tell(), self._callbacks.start_waiting(), self._waits.tell())

    def _watch(self, want: Want, answer: Taken | Unreachable) -> Callable[[], None]:
        wait = waits.of_thread(self.env.ledger, want, answer)
        if wait is None:
            return waits.nothing
        self._waits.add(wait)
        if wait.tells_at < self.notices.wakes_at:
            self.notices.wake()
        return wait.end

    def _say_dropped(self, marks: Sequence[Mark]) -> None:
        """On a thread of its own: leases wait for the watchdog, and a handler of the log may be slow."""
        self._callbacks.start(lambda: say_dropped(marks))

    def call_back(self, on_lost: Callable[..., object], lease: Any, reason: Reason) -> None:
        """On a thread of its own."""
        self._callbacks.start(lambda: run_on_lost(on_lost, lease, reason))


async def _pause(seconds: float) -> None:
    time.sleep(max(0.0, seconds))  # noqa: ASYNC251 - this is the blocking colour


_runtimes: Living[BlockingRuntime] = Living()


@atexit.register
def _at_exit() -> None:
    ends = boottime() + EXIT_PATIENCE
    for runtime in _runtimes:  # all begin before any is waited for: one may take all the time there is
        runtime.stop_soon()
    for runtime in _runtimes:
        runtime.join(max(0.0, ends - boottime()))
