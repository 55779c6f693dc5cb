"""Virtual time, and everything that runs in it: the scheduler of the third colour.

There is one queue of moments. The world takes the earliest, goes there, and calls what was to happen; moments that are
equal come in the order in which they were put. Nothing waits for real, so an hour costs what happens in it.

Recipes run as tasks. What they await is a Promise: an awaitable that suspends until somebody keeps it. Keeping a
promise runs the task at once, up to its next promise, at the same instant of virtual time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from heapq import heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

ENDLESS = 200_000
"""Moments after which something goes round in circles; a run has some hundred."""


class Cancelled(BaseException):
    """A task is cancelled: what asyncio.CancelledError or KeyboardInterrupt is elsewhere."""


class World:
    def __init__(self) -> None:
        self.now = 0.0
        self.is_over = False
        """Set by whoever knows: `run` then returns."""
        self._queue: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._put = 0

    def at(self, moment: float, call: Callable[..., object], *args: Any) -> None:
        self._put = order = self._put + 1
        if order > ENDLESS:
            raise RuntimeError(f"the run does not end: more than {ENDLESS} events by {self.now:.6f} s")
        heappush(self._queue, (moment if moment > self.now else self.now, order, call, args))

    def run(self, until: float) -> None:
        """Until it is over or nothing will happen any more, but no longer than `until`."""
        queue = self._queue
        self.is_over = False
        while queue and not self.is_over:
            moment, _, call, args = heappop(queue)
            if moment > until:
                heappush(queue, (moment, 0, call, args))
                self.now = until
                return
            self.now = moment
            call(*args)


class Promise(Generic[T]):
    """Kept once; whoever comes later changes nothing."""

    __slots__ = ("_tasks", "is_kept", "value")

    value: T

    def __init__(self) -> None:
        self.is_kept = False
        self._tasks: list[Task] = []

    def keep(self, value: T) -> None:
        if self.is_kept:
            return
        self.is_kept = True
        self.value = value
        for task in self._tasks:
            if task.awaits is self:  # and was not cancelled since
                task.step(None)

    def done(self) -> bool:
        """As a future of production's drivers; and so is the next."""
        return self.is_kept

    def set_result(self, value: T, /) -> None:
        self.keep(value)

    def __await__(self) -> Generator[Promise[T], None, T]:
        if not self.is_kept:
            yield self
        return self.value

    def suspends(self, task: Task) -> None:
        self._tasks.append(task)


class Task:
    """A coroutine on its way. `ended` is called with what it raised, or None."""

    __slots__ = ("_coroutine", "_ended", "awaits", "is_over", "name")

    def __init__(self, name: str, coroutine: Coroutine[Any, Any, None], ended: Callable[[Task], None]) -> None:
        self.name = name
        self.awaits: Promise[Any] | None = None
        self.is_over = False
        self._coroutine = coroutine
        self._ended = ended

    def start(self) -> None:
        self.step(None)

    def cancel(self) -> None:
        """Raise Cancelled where it waits. One that is running, or over, can't be."""
        if self.awaits is not None:
            self.step(Cancelled())

    def step(self, error: BaseException | None) -> None:
        global _running
        outer, _running = _running, self.name
        self.awaits = None
        try:
            promise = self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except (StopIteration, Cancelled):
            self.is_over = True
        else:
            self.awaits = promise
            promise.suspends(self)
        finally:
            _running = outer
        if self.is_over:
            self._ended(self)


_running = ""


def running() -> str:
    """The name of the task that runs now."""
    return _running
