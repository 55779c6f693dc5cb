"""Several locks at once, for the tasks of one event loop."""

from __future__ import annotations

import weakref
from asyncio import current_task
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from gripfast.api.aio.lease import AsyncLease, AsyncLost, Body
from gripfast.api.aio.lock import AcquiringAll, TryingAll
from gripfast.api.locks import AnyLeases, AnyLocks, PartOfLeases
from gripfast.api.misuse import NEEDS_ASYNC_WITH, exact, unknown_option
from gripfast.api.settings import LOCKS_WAIT
from gripfast.core.lease import LeaseState
from gripfast.core.ledger import Entry
from gripfast.core.several import Refused, acquire_all, release_all
from gripfast.errors import LeaseLost
from gripfast.interrupts.scope import ByTasks, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.typed import NothingElse


class AsyncLocks(AnyLocks):
    """Several locks, acquired together or not at all: `async with locks as leases`, `await locks.acquire(wait=…)` or
    `await locks.try_acquire()`."""

    _new_book = ByTasks
    if not TYPE_CHECKING:  # which has words of its own
        __enter__ = NEEDS_ASYNC_WITH

    _client: AsyncClient

    @exact
    def acquire(self, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]) -> AcquiringAll:
        """Use it as `leases = await locks.acquire()`, or as `async with locks.acquire(wait=5) as leases`. It waits for
        all of the locks, as `Locks.acquire` does. Nothing happens without `await`."""
        if more or wrong:
            raise unknown_option(AsyncLocks.acquire, wrong, wait, *more)
        return AcquiringAll(self, self._patience(wait))

    @exact
    def try_acquire(self, *more: Never, **wrong: Unpack[NothingElse]) -> Coroutine[Any, Any, AsyncLeases | None]:
        """Use it as `leases = await locks.try_acquire()`: the leases, or None if someone else holds one of the locks.
        Does not wait for the holder."""
        if more or wrong:
            raise unknown_option(AsyncLocks.try_acquire, wrong, *more)
        return TryingAll(self, 0.0)

    async def _obtain(self, patience: float | None, entry: Entry = False) -> AsyncLeases:
        started = boottime()
        answer = await self._acquire(patience, entry)
        if isinstance(answer, Refused):
            raise self._timed_out(boottime() - started, answer)
        return answer

    async def _try(self, entry: Entry) -> AsyncLeases | None:
        answer = await self._acquire(0.0, entry)
        return None if isinstance(answer, Refused) else answer

    async def _acquire(self, patience: float | None, entry: Entry = False) -> AsyncLeases | Refused:
        client = self._client
        runtime = client._start()
        task = current_task()
        self._check_that_none_is_held(runtime.env.ledger, task)
        wants = [each.want for each in self._settings]
        answer = await acquire_all(runtime.env, wants, patience, self._max_hold, entry)
        if isinstance(answer, Refused):
            return answer
        if task is not None:
            for state in answer:
                state.acquirer = weakref.ref(task)
        on_lost = self._settings[0].on_lost
        return AsyncLeases([AsyncPartOfLeases(client, runtime, state, on_lost) for state in answer])

    def __aenter__(self) -> Coroutine[Any, Any, AsyncLeases]:
        return self._enter(scope_of_this_entry(self))

    async def _enter(self, scope: Scope) -> AsyncLeases:
        leases = await self._obtain(self._wait, scope.is_kept)
        leases._begin()  # before they are kept: whoever is refused here has entered nothing
        scope.keep(leases)
        return leases

    @Exit
    async def __aexit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.lock._client._check_loop()  # before anything is left
        await scope.leave()._end(*exc[:2])


class AsyncPartOfLeases(AsyncLease):
    """One of several."""

    _whole: Callable[[], Callable[[], object | None] | None]
    _told_as = PartOfLeases._told_as


class AsyncLeases(AnyLeases[AsyncPartOfLeases]):
    """One successful acquisition of several locks. `async with leases` releases them at the end. If one of them is
    lost, the body is cancelled, and the block raises LeaseLost."""

    _body: _BodyOfSeveral | None = None
    if not TYPE_CHECKING:  # which has words of its own
        __enter__ = NEEDS_ASYNC_WITH

    @property
    def lost(self) -> AsyncLost:
        """As `AsyncLease.lost`: set when one of them is lost."""
        return AsyncLost(self._leases, self)

    async def extend(self, ttl: float | None = None) -> None:
        """Renew all of them now. With `ttl`, they last that many seconds from now on, and after each renewal."""
        for lease in self._leases:
            await lease.extend(ttl)

    async def release(self) -> None:
        """Release all of the locks. A second call does nothing. Raises LeaseLost if a lease was already lost; the
        others are released all the same."""
        loss = await self._release()
        if loss is not None:
            raise loss

    async def _release(self) -> LeaseLost | None:
        first = self._leases[0]
        first._runtime.check_loop()
        if first._is_inherited():
            return None
        return await release_all(first._runtime.env, [lease._state for lease in self._leases])

    async def __aenter__(self) -> AsyncLeases:
        self._leases[0]._runtime.check_loop()
        try:
            self.ensure_held()
        except LeaseLost:
            await self._release()
            raise
        self._begin()
        for lease in self._leases:
            lease._runtime.env.ledger.enter_block(lease.owner)
        return self

    def _begin(self) -> None:
        self.ensure_held()
        self._enter_once()
        self._body = _BodyOfSeveral([lease._state for lease in self._leases])
        self._body.begin()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self._leases[0]._runtime.check_loop()
        await self._end(kind, error)

    async def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        was_cancelled_by_loss = self._body is not None and self._body.end(kind)
        loss = await self._release()
        if loss is not None and was_cancelled_by_loss:
            raise loss from error
        if loss is not None and kind is None:
            raise loss


class _BodyOfSeveral(Body):
    """Cancelled once, when the first of them is lost."""

    def __init__(self, states: Sequence[LeaseState]) -> None:
        super().__init__(states[0])
        self._others = [weakref.ref(state) for state in states[1:]]

    def begin(self) -> None:
        super().begin()
        for state in self._living():
            state.listeners.append(self)

    def end(self, kind: type[BaseException] | None) -> bool:
        for state in self._living():
            state.listeners.remove(self)
        return super().end(kind)

    def _is_lost(self) -> bool:
        return super()._is_lost() or any(state.lost(boottime()) is not None for state in self._living())

    def _living(self) -> list[LeaseState]:
        return [state for each in self._others if (state := each()) is not None]
