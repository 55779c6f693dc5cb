"""The asyncio runtime: recipes are awaited on the loop of the client.

A timer tells losses and starts a round of the watchdog when something is due; neither exists while nothing is held.
Clean-ups run on a thread that needs no loop, because the loop may be gone (an interrupt, the end of `asyncio.run`) when
it turns out that one is needed.

Everything here belongs to one loop, and so do the sockets of its store: whatever a caller starts is refused elsewhere
(`check_loop`) before it has touched anything. A reply that was read, or a request that was written, by another thread
would put the replies of everybody else out of step: a claim could take another one's grant for its own. Only the
loop's thread stores the moments below, so plain attributes and `min` are enough for them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import logging
import math
import os
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any

from gripfast.core import closing
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Mark
from gripfast.core.notice import Notices
from gripfast.core.ports import Store, Taken, Unreachable
from gripfast.core.upkeep import Errand, Extend, Reaper, Upkeep
from gripfast.errors import ConfigurationError, Reason
from gripfast.interrupts.living import Living
from gripfast.machine import boottime, this
from gripfast.runtime import waits
from gripfast.runtime.blocking import drive
from gripfast.runtime.callbacks import ON_LOST_RAISED
from gripfast.runtime.parts import EXIT_PATIENCE, LOOK_AT_LEAST, Patience, make_env
from gripfast.runtime.ticker import Ticker

if TYPE_CHECKING:
    from gripfast.runtime.observers import Observers

_log = logging.getLogger("gripfast.lease")

running_loop = asyncio._get_running_loop
"""None where no loop runs."""

RETRY_ROUND = 0.1
"""Seconds until a round of the watchdog that was cancelled or failed is made again."""


class AioRuntime:
    def __init__(
        self, store: Store, aside: Store, patience: Patience, client: object, observers: Observers | None = None
    ) -> None:
        self.pid = os.getpid()
        self.loop = loop_here()
        self._reaper = Reaper(aside, boottime)
        self._aside = aside
        self._undertaker: Ticker[Mark] = Ticker("gripfast-undertaker", self._give_back, self._end)
        self._undertaker.work_for(client)
        drop = self._undertaker.queue.put
        self.env = make_env(store, patience, drop, asyncio.sleep, self._announce, self._watch, observers)
        self._observers = observers
        self._upkeep = Upkeep(self.env)
        self._losses = Notices(self.env)
        self._errands: list[Errand] = []
        self._is_going_round = False
        self._renew_at = math.inf
        self._looks_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[None] = self.loop.create_future()
        self.is_running = False
        _runtimes.add(self)

    def start(self) -> None:
        self.check_loop()
        if not self.is_running:
            self._undertaker.start()
            self.is_running = True

    def check_loop(self) -> None:
        """To be called by whatever a caller can start, and first: nothing may be touched from elsewhere.

        A forked child is not refused for its loop: the leases that it has inherited are not held, and say why.
        """
        if running_loop() is not self.loop and self.pid == this.pid:
            which = "an event loop that is closed" if self.loop.is_closed() else "another event loop"
            raise ConfigurationError(
                f"this AsyncClient belongs to {which}: make one client per loop with connect_async(), and use its "
                "locks and leases in that loop"
            )

    def tell(self, state: LeaseState) -> None:
        """Wake whoever waits for its end; from any thread: those who wait are tasks of the loop."""
        if running_loop() is self.loop:
            state.tell()
        else:
            _tell_loop(self.loop, state.tell)

    async def extend(self, state: LeaseState, ttl: float) -> Unreachable | None:
        """Have the watchdog renew it now; the reply, or None with the lease over."""
        reply: asyncio.Future[Unreachable | None] = self.loop.create_future()
        self._errands.append(Extend(state, ttl, lambda answer: None if reply.done() else reply.set_result(answer)))
        self._start_round()
        while (left := state.remaining(boottime())) > 0.0 and not reply.done():
            await asyncio.wait([reply], timeout=min(left, LOOK_AT_LEAST))
        return reply.result() if reply.done() else None

    async def stop(self) -> None:
        """Give everything back, end timer and thread; never longer than EXIT_PATIENCE."""
        self.check_loop()
        self._losses.tell()  # what is lost by now is told as a loss
        try:
            if self.is_running:
                await self._upkeep.read_all()
        finally:
            self.stop_soon()
        if not self.is_running:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_PATIENCE):
                await asyncio.shield(self._ended)
                self._undertaker.join(LOOK_AT_LEAST)  # it is on its last line

    async def settle_loop(self) -> None:
        """For tests that move the clock: everything that is due on the loop is done when this returns."""
        self.look_now()
        while self._is_going_round:
            await asyncio.sleep(0)

    def look_now(self) -> None:
        """For tests, on the loop: losses are told when this returns."""
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def settle(self, seconds: float) -> list[str]:
        """As `settle_loop()`, for its threads, from anywhere; which ones are still busy. They never wait for a loop."""
        late = [] if self._undertaker.settle(seconds) else [self._undertaker.name]
        if self._observers is not None and not self._observers.settle(seconds):
            late.append("gripfast-observers")
        return late

    def stop_soon(self) -> None:
        if self.pid == os.getpid():
            closing.begin(self.env)
            self._undertaker.stop()

    def join(self, seconds: float) -> None:
        if self.pid == os.getpid():
            self._undertaker.join(seconds)

    # -- on the loop ---------------------------------------------------------------------------------------------

    def call_back(self, on_lost: Callable[..., Any], lease: Any, reason: Reason) -> None:
        """As a task of its own, in no one's context: a timer's is that of whoever happened to start it."""
        task = self.loop.create_task(_call_back(on_lost, lease, reason), name="gripfast-on-lost", context=Context())
        _keep(task)

    def _watch(self, want: Want, answer: Taken | Unreachable) -> Callable[[], None]:
        wait = waits.of_task(asyncio.current_task(), self.env.ledger, want, answer)
        if wait is None:
            return waits.nothing
        self.loop.call_later(waits.TELL_AFTER, wait.tell)
        return wait.end

    def _announce(self, state: LeaseState) -> None:
        looks_at = min(self._losses.announce(state), state.renew_at)
        self._upkeep.renews_at.announce(state.renew_at)
        self._renew_at = min(self._renew_at, state.renew_at)
        if looks_at < self._looks_at:
            self._look_before(looks_at)

    def _look_before(self, moment: float) -> None:
        moment = min(moment, boottime() + LOOK_AT_LEAST)
        if moment < self._looks_at:
            if self._timer is not None:
                self._timer.cancel()
            self._looks_at = moment
            self._timer = self.loop.call_later(max(0.0, moment - boottime()), self._look)

    def _look(self) -> None:
        self._looks_at, self._timer = math.inf, None
        next_deadline = self._losses.tell()
        if boottime() >= self._renew_at:
            self._renew_at = math.inf
            self._start_round()
        if self._errands or next_deadline < math.inf:
            self._look_before(min(next_deadline, self._renew_at))

    def _start_round(self) -> None:
        if not self._is_going_round:
            self._is_going_round = True  # first: an eager task may be over before create_task() returns
            task = self.loop.create_task(self._look_after(), name="gripfast-watchdog")
            task.add_done_callback(self._round_ended)
            _keep(task)

    async def _look_after(self) -> None:
        errands: list[Errand] = []
        try:
            while True:
                errands, self._errands = self._errands, []
                self._renew_at = math.inf
                moment = await self._upkeep.round(errands)
                self._renew_at = min(self._renew_at, moment)  # which may have been lowered meanwhile
                if not self._errands:
                    return
        except BaseException as error:
            self._errands = errands + self._errands  # asking once more does no harm; a caller may be waiting
            self._renew_at = boottime() + RETRY_ROUND
            if not isinstance(error, Exception):
                raise
            _log.exception("unexpected error in the watchdog; it keeps running. Please report this")

    def _round_ended(self, task: asyncio.Task[None]) -> None:
        """Not in a `finally` of the round itself: a task that is cancelled before its first step has none."""
        self._is_going_round = False
        if task.cancelled() or self._errands:
            self._renew_at = min(self._renew_at, boottime() + RETRY_ROUND)
        if self._errands or self.env.ledger.leases():
            self._look_before(self._renew_at)

    # -- on the undertaker's thread ------------------------------------------------------------------------------

    def _give_back(self, marks: Sequence[Mark]) -> float:
        return drive(self._reaper.reap(marks))

    def _end(self) -> None:
        """The last thing it does, whether the client was closed or just dropped, with or without a loop."""
        now = boottime()
        for state in self.env.ledger.states():
            if state.lost(now) is None:  # its loop may be gone: then nobody has noticed a loss
                state.finish("released")
            _tell_loop(self.loop, state.tell)
        if self._observers is not None:
            self._observers.stop()
        drive(self._reaper.reap_all(self.env.ledger, self.env.is_closed))
        drive(self._aside.close())
        if self._observers is not None:
            self._observers.join()
        _tell_loop(self.loop, self._tell_ended)

    def _tell_ended(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._ended.done():
            self._ended.set_result(None)


def loop_here() -> asyncio.AbstractEventLoop:
    """The running one; an error that says so if there is none."""
    if (loop := running_loop()) is None:
        raise ConfigurationError(
            "an AsyncClient needs a running asyncio event loop, and there is none here: call it in a coroutine, for "
            "example under asyncio.run(), or use connect() for threads"
        )
    return loop


def _tell_loop(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
        loop.call_soon_threadsafe(callback)


async def _call_back(on_lost: Callable[..., Any], lease: Any, reason: Reason) -> None:
    """A plain or a coroutine function; what it raises is logged."""
    try:
        result = on_lost(lease, reason)
        if inspect.isawaitable(result):
            await result
    except Exception:
        _log.exception(ON_LOST_RAISED, lease.name)


def _keep(task: asyncio.Task[None]) -> None:
    """Until it is done, and not in a runtime: there an interrupted task would keep, by its traceback, the client."""
    task.add_done_callback(_tasks.discard)  # first: an interrupt in between must not leave it here for good
    _tasks.add(task)


_tasks: set[asyncio.Task[None]] = set()

_runtimes: Living[AioRuntime] = Living()


@atexit.register
def _at_exit() -> None:
    ends = boottime() + EXIT_PATIENCE
    for runtime in _runtimes:
        runtime.stop_soon()
    for runtime in _runtimes:
        runtime.join(max(0.0, ends - boottime()))
