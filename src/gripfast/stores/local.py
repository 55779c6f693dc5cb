"""Stores whose engine is a plain Python object in this process: what the engine must offer, and the ways to call it.

The blocking store calls it on the calling thread, `yielding` on the loop's. A Worker calls it on a thread of its own,
one request after the other, so that an event loop never blocks on it and a clean-up never overtakes the claim it
cleans up.
"""

from __future__ import annotations

import asyncio
import math
import queue
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

from gripfast.core.ports import (
    Capabilities,
    Claim,
    Granted,
    Hold,
    Inbox,
    LockInfo,
    Page,
    Store,
    Taken,
    Unreachable,
    unreachable,
)
from gripfast.errors import ClientClosed, GripfastError, Reason, StoreUnavailable
from gripfast.guard import Guard
from gripfast.machine import boottime
from gripfast.stores import AioStores
from gripfast.stores.inboxes import AioInbox, BlockingInbox, Inboxes

T = TypeVar("T")

STOP_PATIENCE = 1.0
"""Seconds to wait for a worker that was told to stop and has nothing left to do."""


class Engine(Protocol):
    """The requests of a Store as plain calls, from any thread; what can't be done raises StoreUnavailable."""

    capabilities: Capabilities
    inboxes: Inboxes

    def claim(self, claim: Claim) -> Granted | Taken: ...
    def renew(self, holds: Sequence[Hold]) -> Sequence[Reason | None]: ...
    def release(self, hold: Hold) -> Reason | None: ...
    def abandon(self, holds: Sequence[Hold]) -> None: ...
    def inspect(self, name: str) -> LockInfo | None: ...
    def page(self, prefix: str, after: str | None) -> Page: ...
    def force_release(self, name: str) -> bool: ...
    def vouch(self, hold: Hold, pid: int) -> None: ...
    def close(self) -> None: ...


class LocalStore(Store):
    def __init__(
        self,
        engine: Engine,
        new_inbox: type[BlockingInbox] | type[AioInbox],
        call: Callable[..., Awaitable[Any]],
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.capabilities = engine.capabilities
        self._engine = engine
        self._new_inbox = new_inbox
        self._call = call
        self._at_end = at_end

    @property
    def inboxes(self) -> Inboxes:
        return self._engine.inboxes

    def inbox(self) -> Inbox:
        return self._new_inbox()

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        return await self._ask(self._engine.claim, claim)

    async def renew(self, holds: Sequence[Hold], within: float = math.inf) -> Sequence[Reason | None] | Unreachable:
        return await self._ask(self._engine.renew, holds, is_held=True)

    async def release(self, hold: Hold) -> Reason | Unreachable | None:
        return await self._ask(self._engine.release, hold, is_held=True)

    async def abandon(self, holds: Sequence[Hold]) -> Unreachable | None:
        return await self._ask(self._engine.abandon, holds, is_held=True)

    async def inspect(self, name: str) -> LockInfo | Unreachable | None:
        return await self._ask(self._engine.inspect, name)

    async def page(self, prefix: str, after: str | None) -> Page | Unreachable:
        return await self._ask(self._engine.page, prefix, after)

    async def force_release(self, name: str) -> bool | Unreachable:
        return await self._ask(self._engine.force_release, name)

    async def vouch(self, hold: Hold, pid: int) -> Unreachable | None:
        return await self._ask(self._engine.vouch, hold, pid)

    def stop_waiting(self) -> None:
        self._engine.inboxes.ask_again()

    async def close(self) -> None:
        await self._call(self._engine.close)
        self._at_end()

    async def _ask(self, request: Callable[..., T], *args: Any, is_held: bool = False) -> T | Unreachable:
        try:
            return await self._call(request, *args)  # type: ignore[no-any-return]
        except GripfastError as error:
            return _answer_to(error, is_held)


class BlockingLocalStore(LocalStore):
    """Calls the engine on the calling thread."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, BlockingInbox, _directly)

    async def claim(self, claim: Claim) -> Granted | Taken | Unreachable:
        """As above, without a coroutine in between: this and `release` are the hot path."""
        try:
            return self._engine.claim(claim)
        except GripfastError as error:
            return _answer_to(error, False)

    async def release(self, hold: Hold) -> Reason | Unreachable | None:
        try:
            return self._engine.release(hold)
        except GripfastError as error:
            return _answer_to(error, True)

    async def _ask(self, request: Callable[..., T], *args: Any, is_held: bool = False) -> T | Unreachable:
        try:
            return request(*args)
        except GripfastError as error:
            return _answer_to(error, is_held)


def _answer_to(error: GripfastError, is_held: bool) -> Unreachable:
    """For what is held already, that the engine has become unusable since is a reason to try again."""
    if isinstance(error, StoreUnavailable | ClientClosed):
        return unreachable(error)
    if is_held:
        return unreachable(StoreUnavailable(str(error)))
    raise error


async def _directly(request: Callable[..., T], *args: Any) -> T:
    return request(*args)


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
        self._starting = Guard()
        self._thread = threading.Thread(target=self._tasks.work_off, name=name, daemon=True)

    async def call(self, request: Callable[..., T], *args: Any) -> T:
        """For an event loop. A call that is cancelled, or out of patience, before its turn is never made."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        ends = boottime() + self._patience

        def make(is_open: bool) -> None:
            if not future.cancelled():
                outcome = _outcome_of(request, *args) if is_open and boottime() <= ends else (None, _no_turn(is_open))
                _tell_loop(loop, _settle, future, *outcome)

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
        if self._thread.ident is None:
            self._starting.run(self._start_once)
        self._tasks.put(task)
        if self._tasks.is_over:
            self._tasks.refuse_all()

    def _start_once(self) -> None:
        if self._thread.ident is None:
            self._thread.start()


def _no_turn(is_open: bool) -> GripfastError:
    if not is_open:
        return ClientClosed()
    return StoreUnavailable("the embedded store is too busy: the requests before this one took all its time")


def _outcome_of(request: Callable[..., T], *args: Any) -> tuple[T | None, BaseException | None]:
    try:
        return request(*args), None
    except BaseException as error:
        return None, error


def _settle(future: asyncio.Future[T], result: T, error: BaseException | None) -> None:
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


def on_a_thread(engine: Engine, name: str, request_timeout: float) -> AioStores:
    """The stores of an async client whose engine would block the event loop."""
    worker = Worker(name, request_timeout)
    return AioStores(
        LocalStore(engine, AioInbox, worker.call, worker.stop),
        LocalStore(engine, BlockingInbox, worker.call_blocking, worker.stop),
    )
