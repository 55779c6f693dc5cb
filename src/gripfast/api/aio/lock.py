"""The lock for the tasks of one event loop."""

from __future__ import annotations

import weakref
from asyncio import current_task
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from gripfast.api.aio.attempts import Acquiring, Trying
from gripfast.api.aio.lease import AsyncLease
from gripfast.api.lock import AnyLock, still_held
from gripfast.api.misuse import NEEDS_ASYNC_WITH, exact, unknown_option
from gripfast.api.settings import LOCKS_WAIT
from gripfast.core import rules
from gripfast.core.acquire import acquire
from gripfast.core.ports import Taken
from gripfast.interrupts.scope import ByTasks, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.typed import NothingElse
    from gripfast.api.within import InTransaction


class AsyncLock(AnyLock):
    """`async with lock as lease`, `await lock.acquire(wait=…)` or `await lock.try_acquire()`.

    In a `contextlib.AsyncExitStack` the lease lasts until the stack is closed (any task may close it), or until the
    task that entered the lock ends.
    """

    _how_to_make = "gripfast.async_lock(name), or gripfast.connect_async(url).lock(name)"
    _new_book = ByTasks
    if not TYPE_CHECKING:  # which has words of its own
        __enter__ = NEEDS_ASYNC_WITH

    _client: AsyncClient

    @exact
    def acquire(self, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]) -> Acquiring:
        """Use it as `lease = await lock.acquire()`, or as `async with lock.acquire(wait=5) as lease`. Raises
        LockTimeout if the lock is not free within `wait` seconds. With None, it waits for ever. Without `wait`, the
        setting of the lock counts.

        Keep the lease, and await its `release()`; or write `async with lock:`. If you keep no reference to a lease, it
        is released at once, and the logger `gripfast.lease` gets a WARNING. Nothing happens without `await`.
        """
        if more or wrong:
            raise unknown_option(AsyncLock.acquire, wrong, wait, *more)
        wait = self._settings.wait if wait is LOCKS_WAIT else rules.checked_wait(wait)  # `patience`, without a call
        return Acquiring(self, wait)

    @exact
    def try_acquire(self, *more: Never, **wrong: Unpack[NothingElse]) -> Coroutine[Any, Any, AsyncLease | None]:
        """Use it as `lease = await lock.try_acquire()`: the lease, or None if someone else holds the lock. Does not
        wait for the holder."""
        if more or wrong:
            raise unknown_option(AsyncLock.try_acquire, wrong, *more)
        return Trying(self, 0.0)

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

    async def _obtain(self, patience: float | None, in_block: bool = False) -> AsyncLease:
        started = boottime()
        answer = await self._acquire(patience, in_block)
        if isinstance(answer, Taken):
            raise self._settings.timed_out(boottime() - started, answer)
        return answer

    async def _try(self) -> AsyncLease | None:
        answer = await self._acquire(0.0)
        return None if isinstance(answer, Taken) else answer

    async def _acquire(self, patience: float | None, in_block: bool = False) -> AsyncLease | Taken:
        client, settings = self._client, self._settings
        runtime = client._start()
        held = client._held_here() if settings.reentrant else None
        state = None if held is None else still_held(held, self.name)
        if state is None:
            answer = await acquire(runtime.env, settings.want, patience, in_block)
            if isinstance(answer, Taken):
                return answer
            state = answer
            if (task := current_task()) is not None:
                state.acquirer = weakref.ref(task)
            if held is not None:
                held[self.name] = state
        return AsyncLease(client, runtime, state, settings.on_lost)

    def __aenter__(self) -> Coroutine[Any, Any, AsyncLease]:
        return self._enter(scope_of_this_entry(self))

    async def _enter(self, scope: Scope) -> AsyncLease:
        wait = self._settings.wait
        lease = await (self._acquire(None, scope.is_kept) if wait is None else self._obtain(wait, scope.is_kept))
        assert isinstance(lease, AsyncLease)  # who waits for ever is never told that it is taken
        lease._begin()  # before it is kept: whoever is refused here has entered nothing
        scope.keep(lease)
        return lease

    @Exit
    async def __aexit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.lock._client._check_loop()  # before anything is left
        await scope.leave()._end(*exc[:2])
