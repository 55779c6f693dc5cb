"""Semaphores and read/write locks for the tasks of one event loop."""

from __future__ import annotations

import weakref
from asyncio import current_task
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NoReturn

from gripfast.api.aio.lease import AsyncLease
from gripfast.api.aio.lock import AsyncLock, _Acquiring, _Trying, _warn
from gripfast.api.misuse import NEEDS_ASYNC_WITH, exact, unknown_option
from gripfast.api.permits import (
    AnyRWLock,
    AnySemaphore,
    check_downgrade,
    held_already,
    held_as,
    resized,
)
from gripfast.api.settings import LOCKS_WAIT
from gripfast.api.words import OF_HALVES, OF_WRITE_LEASES
from gripfast.core import rules
from gripfast.core.acquire import acquire
from gripfast.core.lease import LeaseState, Want
from gripfast.core.ledger import Entry
from gripfast.core.permits import downgrade
from gripfast.core.ports import Taken, Unreachable, to_raise
from gripfast.errors import ConfigurationError
from gripfast.interrupts.scope import ByTasks, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.typed import NothingElse


class AsyncSemaphore(AnySemaphore):
    """`async with semaphore as lease`, `await semaphore.acquire(n, wait=…)` or `await semaphore.try_acquire(n)`."""

    _how_to_make = "gripfast.connect_async(url).semaphore(name, limit)"
    _new_book = ByTasks
    if not TYPE_CHECKING:  # which has words of its own
        __enter__ = NEEDS_ASYNC_WITH

    _client: AsyncClient

    @exact
    def acquire(
        self, n: int = 1, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]
    ) -> AcquiringPermits:
        """Use it as `lease = await semaphore.acquire(n)`, or as `async with semaphore.acquire(n, wait=5) as lease`. The
        permits are acquired together, and released together. Raises LockTimeout if they are not free within `wait`
        seconds. With None, it waits for ever. Without `wait`, the setting of the semaphore counts.

        Keep the lease, and await its `release()`; or write `async with semaphore:`.
        """
        if more or wrong:
            raise unknown_option(AsyncSemaphore.acquire, wrong, wait, *more)
        return AcquiringPermits(_Part(self, self._want(n)), self._settings.patience(wait))

    @exact
    def try_acquire(
        self, n: int = 1, *more: Never, **wrong: Unpack[NothingElse]
    ) -> Coroutine[Any, Any, AsyncSemaphoreLease | None]:
        """Use it as `lease = await semaphore.try_acquire(n)`: the lease, or None if n permits are not free, or if
        others wait for theirs. Does not wait."""
        if more or wrong:
            raise unknown_option(AsyncSemaphore.try_acquire, wrong, *more)
        return TryingPermits(_Part(self, self._want(n)), 0.0)

    async def resize(self, limit: int) -> None:
        """Change the limit for everybody, in one step, as `Semaphore.resize` does."""
        limit = rules.checked_limit(limit)
        answer = await resized(self._client._store(), self._settings.want.key, limit)
        if isinstance(answer, Unreachable):
            raise to_raise(answer.error)
        self._is_resized(limit)

    def __aenter__(self) -> Coroutine[Any, Any, AsyncSemaphoreLease]:
        return self._enter(scope_of_this_entry(self))

    async def _enter(self, scope: Scope) -> AsyncSemaphoreLease:
        lease = await _Part(self, self._settings.want)._obtain(self._settings.wait, scope.is_kept)
        lease._begin()  # before it is kept: whoever is refused here has entered nothing
        scope.keep(lease)
        return lease

    @Exit
    async def __aexit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.lock._client._check_loop()  # before anything is left
        await scope.leave()._end(*exc[:2])


class _Part:
    """So many permits of a semaphore, to be acquired."""

    def __init__(self, semaphore: AsyncSemaphore, want: Want) -> None:
        self._semaphore = semaphore
        self._want = want

    def _described(self) -> str:
        return self._semaphore._described()

    async def _obtain(self, patience: float | None, entry: Entry = False) -> AsyncSemaphoreLease:
        started = boottime()
        answer = await self._acquire(patience, entry)
        if isinstance(answer, Taken):
            raise self._semaphore._settings.timed_out(boottime() - started, answer)
        return answer

    async def _try(self, entry: Entry) -> AsyncSemaphoreLease | None:
        answer = await self._acquire(0.0, entry)
        return None if isinstance(answer, Taken) else answer

    async def _acquire(self, patience: float | None, entry: Entry = False) -> AsyncSemaphoreLease | Taken:
        client = self._semaphore._client
        runtime = client._start()
        answer = await acquire(runtime.env, self._want, patience, entry)
        if isinstance(answer, Taken):
            return answer
        _note_acquirer(answer)
        return AsyncSemaphoreLease(client, runtime, answer, self._semaphore._settings.on_lost)


def _note_acquirer(state: LeaseState) -> None:
    if (task := current_task()) is not None:
        state.acquirer = weakref.ref(task)


class AsyncSemaphoreLease(AsyncLease):
    """Permits of a semaphore. `async with lease` releases them at the end."""

    @property
    def slots(self) -> tuple[int, ...]:
        """The numbers of the permits, from 0 on: no other holder has one of them at the same time. With `token` as the
        fencing token, each of them can guard a resource of its own."""
        return self._state.slots

    if TYPE_CHECKING:

        async def detach(  # type: ignore[misc] # only a lock can be handed over: a type checker refuses every call
            self: Never, ttl: float | None = None
        ) -> NoReturn: ...

        async def __aenter__(self) -> AsyncSemaphoreLease: ...


class AsyncRWLock(AnyRWLock):
    """Many may read at the same time, or one may write: `async with rwlock.read()`, `async with rwlock.write()`.

    First come first served: a reader that comes after a waiting writer waits, so that writers get their turn.
    """

    _client: AsyncClient

    @exact
    def read(self, **wrong: Unpack[NothingElse]) -> AsyncReadLock:
        """A lock that other readers may hold at the same time, but no writer. Does no I/O."""
        if wrong:
            raise unknown_option(AsyncRWLock.read, wrong)
        return AsyncReadLock(self._client, self._read)

    @exact
    def write(self, **wrong: Unpack[NothingElse]) -> AsyncWriteLock:
        """A lock that keeps out all others, readers and writers. Does no I/O."""
        if wrong:
            raise unknown_option(AsyncRWLock.write, wrong)
        return AsyncWriteLock(self._client, self._write)


class _AsyncHalf(AsyncLock, lacks=OF_HALVES):
    """Of a read/write lock."""

    _how_to_make = "gripfast.connect_async(url).rwlock(name).read() or .write()"
    _lease: type[AsyncLease] = AsyncLease

    async def within(self, *_: object, **__: object) -> NoReturn:
        """Only locks can be taken in the caller's own transaction."""
        raise ConfigurationError(
            "within() is for locks: a read/write lock has its own connection. Write `async with` alone"
        )

    async def _acquire(self, patience: float | None, entry: Entry = False) -> AsyncLease | Taken:
        client, settings = self._client, self._settings
        runtime = client._start()
        held = client._held_here()
        state = held_already(held, settings.want, "task")
        if state is None:
            answer = await acquire(runtime.env, settings.want, patience, entry)
            if isinstance(answer, Taken):
                return answer
            state = answer
            _note_acquirer(state)
            held[held_as(self.name)] = state
        return self._lease(client, runtime, state, settings.on_lost)


class AsyncReadLock(_AsyncHalf):
    """`async with rwlock.read() as lease`: used like a lock."""

    def _described(self) -> str:
        return f"the read lock {self.name!r}"


class AsyncWriteLock(_AsyncHalf):
    """`async with rwlock.write() as lease`: used like a lock."""

    def _described(self) -> str:
        return f"the write lock {self.name!r}"

    if TYPE_CHECKING:

        def acquire(  # type: ignore[override] # what it returns is used in the same way
            self, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]
        ) -> AcquiringWrite: ...

        def try_acquire(
            self, *more: Never, **wrong: Unpack[NothingElse]
        ) -> Coroutine[Any, Any, AsyncWriteLease | None]: ...

        def __aenter__(self) -> Coroutine[Any, Any, AsyncWriteLease]: ...


class AsyncWriteLease(AsyncLease, lacks=OF_WRITE_LEASES):
    """The lease of a writer. `async with lease` releases it at the end."""

    async def downgrade(self) -> None:
        """From now on it is the lease of a reader, with the same token: other readers come in, and no writer does in
        between. A second call does nothing. There is no way back.

        If the store can't be reached, the downgrade is repeated in the background. Raises LeaseLost if the lease was
        lost, and ConfigurationError while this task has another handle on it (`read()` or `write()` inside)."""
        self._runtime.check_loop()
        check_downgrade(self, self._client.capabilities)
        await downgrade(self._runtime.env, self._state)

    if TYPE_CHECKING:

        async def detach(  # type: ignore[misc] # only a lock can be handed over: a type checker refuses every call
            self: Never, ttl: float | None = None
        ) -> NoReturn: ...

        async def __aenter__(self) -> AsyncWriteLease: ...


AsyncWriteLock._lease = AsyncWriteLease


class _AcquiringPermits(_Acquiring["AsyncSemaphoreLease"]):
    __slots__ = ()
    _instead = "write `async with semaphore:`, or `lease = await semaphore.acquire()`"


class _TryingPermits(_Trying["AsyncSemaphoreLease"]):
    __slots__ = ()
    _instead = "write `lease = await semaphore.try_acquire()`, which is None if no permit is free"


class AcquiringPermits(_AcquiringPermits):
    """From `acquire()` of a semaphore: await it, or use `async with`."""

    __slots__ = ()
    __del__ = _warn


class TryingPermits(_TryingPermits):
    """The same of `try_acquire()`, to be awaited."""

    __slots__ = ()
    __del__ = _warn


if TYPE_CHECKING:

    class AcquiringWrite(_Acquiring["AsyncWriteLease"]):
        """From `acquire()` of a write lock: await it, or use `async with`."""


for _awaited in (_AcquiringPermits, _TryingPermits):
    _awaited._when_awaited = _awaited
