"""Elections, for the tasks of one event loop."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from gripfast.api.aio.lock import Acquiring, AsyncLock, Trying, _AcquiringOne, _TryingOne
from gripfast.api.current import await_with
from gripfast.api.decorator import Decorator, Namer, _name_of, refuse_generators
from gripfast.api.election import AnyElection, check_function, is_over
from gripfast.api.misuse import exact, more_for_run, unknown_option
from gripfast.api.settings import checked_wait
from gripfast.core.election import Campaign, Leader, Watch, leader_of
from gripfast.errors import ClientClosed, ConfigurationError, LeaseLost, StoreUnavailable
from gripfast.runtime.aio import _tell_loop

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.typed import NothingElse
    from gripfast.core.ports import Env

R = TypeVar("R")


class AsyncElection(AnyElection):
    """`async with election.lead() as term`, `await election.run(function)`, `await election.leader()` or
    `async for leader in election.watch()`."""

    _how_to_make = "gripfast.connect_async(url).election(name)"
    _client: AsyncClient

    @exact
    def lead(self, wait: float | None = None, *more: Never, **wrong: Unpack[NothingElse]) -> Acquiring:
        """Use it as `async with election.lead() as term`, or as `term = await election.lead()`. It campaigns as
        `Election.lead` does. Nothing happens without `await`."""
        if more or wrong:
            raise unknown_option(AsyncElection.lead, wrong, wait, *more)
        return Leading(self._lock(), checked_wait(wait))

    @exact
    def try_lead(self, *more: Never, **wrong: Unpack[NothingElse]) -> Coroutine[Any, Any, AsyncLease | None]:
        """Use it as `term = await election.try_lead()`: the term, or None if someone else leads. Does not wait."""
        if more or wrong:
            raise unknown_option(AsyncElection.try_lead, wrong, *more)
        return TryingToLead(self._lock(), 0.0)

    async def leader(self) -> Leader | None:
        """Who leads now, or None if nobody does."""
        return leader_of(await self._client.inspect(self.name))

    def watch(self) -> AsyncIterator[Leader | None]:
        """Iterate over the leaders, with `async for`, as `Election.watch` does."""
        return _Watching(self._client, self._watch())

    @exact
    async def run(
        self, function: Callable[[AsyncLease], Awaitable[R]], *more: Never, **wrong: Unpack[NothingElse]
    ) -> R:
        """Campaign, and await `function(term)` while this candidate leads. Return what the function returns.

        When the term is lost, the function is cancelled. As soon as it has ended, `run` campaigns again, and calls the
        function with the next term. It never campaigns while the function still runs. The rest is as in
        `Election.run`.
        """
        if more or wrong:
            raise more_for_run(function, more, wrong)
        check_function(function)
        while True:
            term = await self._campaign()
            try:
                async with term:
                    result: R = await await_with(term, _awaitable, (function, term), {})
                return result
            except LeaseLost:
                if not is_over(term, sys.exception()):
                    raise
            del term

    async def _campaign(self) -> AsyncLease:
        """For ever."""
        lock = self._lock()
        campaign = Campaign(self.name)
        while True:
            try:
                return await lock._acquire(None, entry=True)  # type: ignore[return-value] # it waits for ever
            except StoreUnavailable as error:
                if error._is_permanent:
                    raise
                pause = campaign.failed(error)
            await _nap(self._client._start().env, pause)

    def _lock(self) -> _Lock:
        return _Lock(self._client, self._settings)


class _Lock(AsyncLock):
    """The lock that an election is, in messages."""

    def _described(self) -> str:
        return f"the election {self.name!r}"


class _Leading(_AcquiringOne):
    __slots__ = ()
    _call = "lead()"
    _instead = "write `async with election.lead() as term:`, or `term = await election.lead()`"


class _TryingToLead(_TryingOne):
    __slots__ = ()
    _call = "try_lead()"
    _instead = "write `term = await election.try_lead()`, which is None if someone else leads"


class Leading(Acquiring):
    """From `lead()`: await it, or use `async with`."""

    __slots__ = ()
    _when_awaited = _Leading
    _call = _Leading._call
    _instead = _Leading._instead


class TryingToLead(Trying):
    """A `try_lead()`, to be awaited."""

    __slots__ = ()
    _when_awaited = _TryingToLead
    _call = _TryingToLead._call
    _instead = _TryingToLead._instead


_Leading._when_awaited = _Leading
_TryingToLead._when_awaited = _TryingToLead


class _Watching(AsyncIterator[Leader | None]):
    """No generator: it can go on after an error."""

    def __init__(self, client: AsyncClient, watch: Watch) -> None:
        self._client = client
        self._watch = watch

    async def __anext__(self) -> Leader | None:
        try:
            env = self._client._start().env
            return await self._watch.next(env, functools.partial(_nap, env))
        except ClientClosed:
            raise StopAsyncIteration from None


async def _nap(env: Env, seconds: float) -> None:
    """Until the client is closed, or so long."""
    if seconds <= 0.0:
        return
    over = asyncio.Event()
    wake = functools.partial(_tell_loop, asyncio.get_running_loop(), over.set)
    env.sleepers.append(wake)
    try:
        if not env.is_closed:
            async with asyncio.timeout(seconds):
                await over.wait()
    except TimeoutError:
        pass
    finally:
        env.sleepers.remove(wake)


def _awaitable(function: Callable[[AsyncLease], Awaitable[R]], term: AsyncLease) -> Awaitable[R]:
    result = function(term)
    if not inspect.isawaitable(result):
        raise ConfigurationError(
            f"{_name_of(function)} is not async: pass a coroutine function, or make the election with a client of "
            "gripfast.connect(url)"
        )
    return result


def elected_async(make: Callable[..., AsyncElection], name: str, settings: dict[str, Any]) -> Decorator:
    """For coroutine functions: a call of the function is a `run`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        refuse_generators(function)
        if not inspect.iscoroutinefunction(function):
            raise ConfigurationError(
                f"{_name_of(function)} is not async: decorate it with a client of connect(), not of connect_async()"
            )
        name_of = Namer(name, function)

        @functools.wraps(function)
        async def lead(*args: Any, **kwargs: Any) -> Any:
            return await make(name_of(args, kwargs), **settings).run(lambda term: function(*args, **kwargs))

        return lead

    return decorate
