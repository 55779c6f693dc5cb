"""The lock for the tasks of one event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Generator
from typing import TYPE_CHECKING, Any

from gripfast.api.aio.lease import AsyncLease
from gripfast.api.lock import AnyLock, still_held
from gripfast.api.settings import LOCKS_WAIT
from gripfast.core import rules
from gripfast.core.acquire import acquire
from gripfast.core.ports import Taken
from gripfast.interrupts.scope import ByTasks, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime

if TYPE_CHECKING:
    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.within import InTransaction


class AsyncLock(AnyLock):
    """`async with lock as lease`, `await lock.acquire(wait=…)` or `await lock.try_acquire()`.

    In a `contextlib.AsyncExitStack` the lease lasts until the stack is closed (any task may close it), or until the
    task that entered the lock ends.
    """

    _new_book = ByTasks

    _client: AsyncClient

    def acquire(self, wait: float | None = LOCKS_WAIT) -> Acquiring:
        """Use it as `lease = await lock.acquire()`, or as `async with lock.acquire(wait=5) as lease`. Raises
        LockTimeout if the lock is not free within `wait` seconds. With None, it waits for ever. Without `wait`, the
        setting of the lock counts."""
        if wait is LOCKS_WAIT:
            wait = self._settings.wait
        elif wait is not None:
            wait = rules.checked_wait(wait)
        return Acquiring(self, wait)

    async def try_acquire(self) -> AsyncLease | None:
        """Return the lease, or None if someone else holds the lock. Does not wait for the holder."""
        answer = await self._acquire(0.0)
        return None if isinstance(answer, Taken) else answer

    async def within(
        self, connection: object, wait: float | None = LOCKS_WAIT, *, durable: bool = False
    ) -> InTransaction:
        """Take the lock in the open transaction of your own database connection; commit or rollback releases it.

        Call it before you read anything in that transaction. The client must be connected with `?mode=row` or, on
        PostgreSQL only, `?mode=advisory`. A rollback to a savepoint may release the lock, too, while the transaction
        goes on. With `durable=True` the call raises ConfigurationError if a rollback to a savepoint could release the
        lock. `wait` is that of `acquire()`.
        """
        from gripfast.api.within import within

        env = self._client._start().env
        patience = self._settings.patience(wait)
        return await within(env, self._settings.want, connection, patience, durable, is_async=True)

    async def _acquire(self, patience: float | None) -> AsyncLease | Taken:
        runtime = self._client._start()
        held = self._client._held_here() if self._settings.reentrant else None
        state = None if held is None else still_held(held, self.name)
        if state is None:
            answer = await acquire(runtime.env, self._settings.want, patience)
            if isinstance(answer, Taken):
                return answer
            state = answer
            if held is not None:
                held[self.name] = state
        return AsyncLease(self._client, runtime, state, self._settings.on_lost)

    def __aenter__(self) -> Coroutine[Any, Any, AsyncLease]:
        return self._enter(scope_of_this_entry(self))

    async def _enter(self, scope: Scope) -> AsyncLease:
        lease = await self.acquire()
        lease._begin()  # before it is kept: whoever is refused here has entered nothing
        scope.keep(lease)
        return lease

    @Exit
    async def __aexit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.lock._client._check_loop()  # before anything is left
        await scope.leave()._end(*exc[:2])


class Acquiring(Awaitable[AsyncLease]):
    """What `AsyncLock.acquire()` returns: awaited, or entered."""

    def __init__(self, lock: AsyncLock, patience: float | None) -> None:
        self._lock = lock
        self._patience = patience
        self._lease: AsyncLease | None = None

    def __await__(self) -> Generator[Any, None, AsyncLease]:
        started = boottime()
        answer = yield from self._lock._acquire(self._patience).__await__()
        if isinstance(answer, Taken):
            raise self._lock._settings.timed_out(boottime() - started, answer)
        return answer

    async def __aenter__(self) -> AsyncLease:
        self._lease = await self
        return await self._lease.__aenter__()

    async def __aexit__(self, *exc: Any) -> None:
        assert self._lease is not None
        await self._lease.__aexit__(*exc)
