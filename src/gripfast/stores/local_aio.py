"""Inboxes for tasks, and the ways to call an engine of this machine (`stores/local.py`) from an event loop.

`yielding` calls it on the loop's own thread. A Worker calls it on a thread of its own, one request after the other, so
that the loop never blocks on it and a clean-up never overtakes the claim it cleans up.
"""

from __future__ import annotations

import asyncio
import queue
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from gripfast.core.ports import Granted
from gripfast.errors import ClientClosed, GripfastError, StoreUnavailable
from gripfast.interrupts.threads import Background
from gripfast.machine import boottime

T = TypeVar("T")

STOP_PATIENCE = 1.0
"""Seconds to wait for a worker that was told to stop and has nothing left to do."""


class AioInbox:
    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._loop = loop or asyncio.get_running_loop()
        self._pushes: deque[Granted | None] = deque()
        self._hearing: asyncio.Future[None] | None = None

    def deliver(self, push: Granted | None) -> bool:
        try:
            self._loop.call_soon_threadsafe(self.receive, push)
        except RuntimeError:  # the loop is closed
            return False
        return True

    async def hear(self, until: float) -> Granted | None:
        if not self._pushes:
            self._hearing = self._loop.create_future()
            timer = self._loop.call_later(max(0.0, until - boottime()), self._stop_hearing)
            try:
                await self._hearing
            finally:
                timer.cancel()
        return self._pushes.popleft() if self._pushes else None

    def receive(self, push: Granted | None) -> None:
        """As `deliver`, on the loop's own thread."""
        self._pushes.append(push)
        self._stop_hearing()

    def _stop_hearing(self) -> None:
        if self._hearing is not None and not self._hearing.done():
            self._hearing.set_result(None)


async def yielding(request: Callable[..., T], *args: Any) -> T:
    """On the loop's own thread, for engines too quick to block it; other tasks get their turn before the answer is
    used."""
    result = request(*args)
    await asyncio.sleep(0)
    return result


class _Tasks(queue.SimpleQueue["Callable[[bool], None] | None"]):
    """Of a worker, up to None. Each is called once: with True, or with False if the worker has ended before its turn.

    Whoever puts a task behind the end finds `is_over` set, or the worker has found the task: one of them refuses it, or
    its caller would wait for ever.
    """

    is_over = False

    def work_off(self) -> None:
        while (task := self.get()) is not None:
            task(True)
            del task  # it may be the last to know a lease
        self.is_over = True
        self.refuse_all()

    def refuse_all(self) -> None:
        while True:
            try:
                task = self.get_nowait()
            except queue.Empty:
                return
            if task is not None:
                task(False)


class Worker:
    """One thread that makes calls in the order in which they came, for event loops and for other threads."""

    def __init__(self, name: str, patience: float) -> None:
        self._patience = patience
        self._is_stopped = False
        self._tasks = _Tasks()
        self._thread = Background(self._tasks.work_off, name)

    async def call(self, request: Callable[..., T], *args: Any) -> T:
        """For an event loop. A call that is cancelled, or out of patience, before its turn is never made."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        ends = boottime() + self._patience

        def make(is_open: bool) -> None:
            if not future.cancelled():
                outcome = _outcome_of(request, *args) if is_open and boottime() <= ends else (None, _no_turn(is_open))
                _tell_loop(loop, _finish, future, *outcome)

        self._put(make)
        return await future

    async def call_blocking(self, request: Callable[..., T], *args: Any) -> T:
        """For another thread, in the blocking colour."""
        reply: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()
        self._put(lambda is_open: reply.put(_outcome_of(request, *args) if is_open else (None, _no_turn(is_open))))
        result, error = reply.get()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    def stop(self) -> None:
        self._is_stopped = True
        self._tasks.put(None)
        if self._thread.ident is not None:
            self._thread.join(STOP_PATIENCE)

    def _put(self, task: Callable[[bool], None]) -> None:
        if self._is_stopped:
            raise _no_turn(is_open=False)
        self._thread.start()
        self._tasks.put(task)
        if self._tasks.is_over:
            self._tasks.refuse_all()


def _no_turn(is_open: bool) -> GripfastError:
    if not is_open:
        return ClientClosed()
    return StoreUnavailable(
        "the embedded store did not get to this request within its request_timeout, because earlier requests took too "
        "long: use a larger request_timeout, or fewer requests at once"
    )


def _outcome_of(request: Callable[..., T], *args: Any) -> tuple[T | None, BaseException | None]:
    try:
        return request(*args), None
    except BaseException as error:
        return None, error


def _finish(future: asyncio.Future[T], result: T, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _tell_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:  # the loop is closed: nobody waits any more
        pass
