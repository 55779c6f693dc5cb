"""What is to be done once, for the tasks of one event loop."""

from __future__ import annotations

import functools
import inspect
import weakref
from asyncio import current_task
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from gripfast.api.aio.lease import AsyncLease
from gripfast.api.misuse import NEEDS_ASYNC_WITH
from gripfast.api.once import AnyOnce, AnyRun
from gripfast.core.acquire import acquire
from gripfast.core.ledger import Entry
from gripfast.core.once import record_done
from gripfast.core.ports import Taken
from gripfast.errors import ConfigurationError, LeaseLost
from gripfast.interrupts.scope import ByTasks, Exit, Scope, scope_of_this_entry

if TYPE_CHECKING:
    from gripfast.api.aio.client import AsyncClient

P = ParamSpec("P")
R = TypeVar("R")


class AsyncOnce(AnyOnce):
    """`async with once as run:`, or a decorator."""

    _new_book = ByTasks
    if not TYPE_CHECKING:  # which has words of its own
        __enter__ = NEEDS_ASYNC_WITH

    _client: AsyncClient

    async def _begin(self, entry: Entry) -> AsyncRun:
        client, want = self._client, self._settings.want
        runtime = client._start()
        answer = await acquire(runtime.env, want, self._settings.wait, entry)
        if isinstance(answer, Taken):
            return AsyncRun(self, answer)
        if (task := current_task()) is not None:
            answer.acquirer = weakref.ref(task)
        lease = AsyncLease(client, runtime, answer, self._settings.on_lost)
        lease._begin()
        return AsyncRun(self, lease)

    def __aenter__(self) -> Coroutine[Any, Any, AsyncRun]:
        return self._enter(scope_of_this_entry(self))

    async def _enter(self, scope: Scope) -> AsyncRun:
        run = await self._begin(scope.is_kept)
        scope.keep(run)
        return run

    @Exit
    async def __aexit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.lock._client._check_loop()  # before anything is left
        await scope.leave()._end(*exc[:2])

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, Coroutine[Any, Any, R | None]]:
        """Decorate a coroutine function: it runs if it is to be done here. Otherwise the call returns None."""
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{getattr(function, '__qualname__', function)} is not async: decorate it with a client of connect(), "
                "not of connect_async()"
            )
        return decorated(self._client.once, self._again(function), function)


class AsyncRun(AnyRun["AsyncLease"]):
    """From `async with client.once(…) as run:`. True if the block is to do the work. Otherwise `done` or `busy` is
    true."""

    __slots__ = ()

    async def _end(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        lease = self._lease
        if lease is None:
            self._check_asked(kind)
            return
        was_cancelled_by_loss = lease._body is not None and lease._body.end(kind)
        if self._records(kind):
            if lease._let_go():
                await record_done(lease._runtime.env, lease._state, self._once._keep)
            return
        try:
            await lease.release()
        except LeaseLost as lost:
            if was_cancelled_by_loss:
                raise lost from error


def decorated(
    make: Callable[..., AsyncOnce], again: Callable[..., dict[str, Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    from gripfast.api.current import await_with

    @functools.wraps(function)
    async def once(*args: Any, **kwargs: Any) -> Any:
        async with make(**again(args, kwargs)) as run:
            return await await_with(run.lease, function, args, kwargs) if run else None

    return once
