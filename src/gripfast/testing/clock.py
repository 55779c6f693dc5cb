"""A clock that a test moves. Leases, renewals and waits for locks follow it, and so does the memory of a World.

Time goes on as usual, and `advance()` adds to it: step by step, from one moment at which something is due to the next.
At each of them everything that is due is done before the next step: renewals, losses, `on_lost`, the retries of
waiters. So an advanced clock looks to the program like time that has passed while everybody was at work.
`suspend()` takes all of it in one step: as if the process had been suspended.

There is one clock in a process, and it never goes back (`machine.advance_boottime`). The wall clock is left alone, and
so are `time.sleep()` and the timers of event loops.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import TYPE_CHECKING, Union

from gripfast.errors import ConfigurationError
from gripfast.machine import advance_boottime, boottime
from gripfast.runtime import blocking
from gripfast.testing.moments import moments

if TYPE_CHECKING:
    from gripfast.runtime.aio import AioRuntime

Runtime = Union[blocking.BlockingRuntime, "AioRuntime"]

PATIENCE = 10.0
"""Real seconds for everything that is due at one moment. More than that is a callback that hangs."""

LOOK_EVERY = 0.05
"""Seconds from one look to the next, whether a loop that has something to do still runs."""

GRAIN = 0.001
"""Seconds by which the clock goes past a moment, so that it has come for everybody."""

TURNS_MOST = 1000
"""Turns of a loop whose tasks never come to rest."""

TURNS_UNSEEN = 25
"""Turns of a loop that does not show whether they have."""

_moving = threading.RLock()
"""Two who move it at the same time would add up, and one that is told to stop must not be about to move it."""

skipping: list[Clock] = []
"""Those whose `fast_forward()` runs."""


class Clock:
    """The clock of this process, for tests."""

    def now(self) -> float:
        """Seconds, from an arbitrary start."""
        return boottime()

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass. Leases are renewed, or expire; waits end; `on_lost` has returned."""
        _refuse_in_loop("advance")
        _complain([], moments.settle(PATIENCE))
        for _ in self._steps(seconds):
            _settle()

    async def advance_async(self, seconds: float) -> None:
        """As `advance()`, in a coroutine. Tasks go on meanwhile, before the first step and after each, until all of
        them wait for something."""
        await _let_tasks_go_on()
        _complain([], await moments.settle_async(PATIENCE))
        for _ in self._steps(seconds):
            await _settle_async()

    def suspend(self, seconds: float) -> None:
        """As if the process had been suspended for so many seconds: nobody has renewed anything meanwhile."""
        _refuse_in_loop("suspend")
        _move(boottime() + _checked(seconds))
        _settle()

    async def suspend_async(self, seconds: float) -> None:
        """As `suspend()`, in a coroutine."""
        await _let_tasks_go_on()
        _move(boottime() + _checked(seconds))
        await _settle_async()

    @contextmanager
    def fast_forward(self) -> Iterator[None]:
        """While the block runs, nobody waits: whenever somebody waits for a lock, or pauses before it retries, the
        clock is advanced to the next moment at which something is due.

        For tests in which nobody else will release the lock: a waiter does not give another thread time to work."""
        over = threading.Event()
        thread = threading.Thread(target=self._skip, args=(over.is_set,), name="gripfast-fast-forward", daemon=True)
        skipping.append(self)
        thread.start()
        try:
            yield
        finally:
            skipping.remove(self)
            with _moving:
                over.set()
            moments.look_again()

    def _skip(self, is_over: Callable[[], bool]) -> None:
        while moments.await_waiter(is_over):
            with _moving:
                following = [] if is_over() else _following()
                if following:
                    _move(min(following) + GRAIN)
            if following:
                _settle()

    def _steps(self, seconds: float) -> Iterator[None]:
        """The clock is moved before each; what is due then is to be done in it."""
        ends = boottime() + _checked(seconds)
        while (now := boottime()) < ends:
            _move(min([ends, *(moment + GRAIN for moment in _following())]), now)
            yield

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {boottime():.3f} s>"


def _checked(seconds: float) -> float:
    if not 0.0 <= seconds < float("inf"):
        raise ConfigurationError(f"the clock can't be moved by {seconds!r} seconds: it only goes forward")
    return seconds


def _move(moment: float, now: float | None = None) -> None:
    with _moving:
        advance_boottime(max(0.0, moment - (boottime() if now is None else now)))
    moments.wake()


def _following() -> list[float]:
    """Where to stop: when a lease is renewed or over, when somebody stops waiting."""
    now = boottime()
    leases = [state for runtime in runtimes() for state in runtime.env.ledger.leases() if not state.endings]
    dates = [moment for state in leases for moment in (state.renew_at, state.deadline) if now < moment < float("inf")]
    return dates + moments.following(now)


def runtimes() -> list[Runtime]:
    """Those of all clients of this process."""
    return [*blocking._runtimes, *_aio_runtimes()]


def _aio_runtimes() -> list[AioRuntime]:
    """Tests without any load none of it."""
    aio = sys.modules.get("gripfast.runtime.aio")
    return [] if aio is None else list(aio._runtimes)


def settle_threads() -> list[str]:
    """Everything that is due in threads of clients; those that are still busy with it."""
    return [name for runtime in runtimes() for name in runtime.settle(PATIENCE)]


def _settle() -> None:
    """Also in loops, which are those of other threads: their tasks go on meanwhile."""
    late = settle_threads()
    for loop in {runtime.loop for runtime in _aio_runtimes() if runtime.loop.is_running()}:
        late += _settle_from_outside(loop)
    _complain(late, moments.settle(PATIENCE))


def _settle_from_outside(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Of a loop that ends meanwhile, nothing is due any more: it has cancelled its tasks, or dropped them."""
    work = _settle_loop()
    try:
        settled = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:  # it is closed
        work.close()
        return []
    ends = time.monotonic() + PATIENCE
    while loop.is_running() and not wait([settled], LOOK_EVERY).done:
        if time.monotonic() > ends:
            return ["an event loop"]
    if inspect.getcoroutinestate(work) == inspect.CORO_CREATED:
        work.close()
    return settled.result() if settled.done() and not settled.cancelled() else []


async def _settle_async() -> None:
    late = [*settle_threads(), *await _settle_loop()]
    _complain(late, await moments.settle_async(PATIENCE))
    await _let_tasks_go_on()


async def _let_tasks_go_on() -> None:
    """Until all of them wait for something, as far as the loop shows that: uvloop does not."""
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(TURNS_UNSEEN if ready is None else TURNS_MOST):
        await asyncio.sleep(0)
        if ready is not None and not ready:
            return


async def _settle_loop() -> list[str]:
    here = asyncio.get_running_loop()
    for runtime in [runtime for runtime in _aio_runtimes() if runtime.loop is here]:
        await runtime.settle_loop()
    late = settle_threads()
    callbacks = [task for task in asyncio.all_tasks() if task.get_name() == "gripfast-on-lost"]
    if callbacks := [task for task in callbacks if task is not asyncio.current_task()]:
        _, running = await asyncio.wait(callbacks, timeout=PATIENCE)
        late += [task.get_name() for task in running]
    return late


def _complain(late: list[str], are_settled: bool) -> None:
    if late or not are_settled:
        who = ", ".join(sorted(set(late))) or "a waiter"
        raise TimeoutError(
            f"the clock was moved, but {who} has still not done what was due after {PATIENCE:g} s. Look for an "
            "on_lost callback or an observer that does not return"
        )


def _refuse_in_loop(method: str) -> None:
    """Whose tasks could not do what is due."""
    loop = asyncio._get_running_loop()
    if loop is not None and any(runtime.loop is loop for runtime in _aio_runtimes()):
        raise ConfigurationError(
            f"an event loop runs here, and its tasks have to go on when the clock is moved: write "
            f"`await clock.{method}_async(…)`"
        )
