"""The lock for the tasks of one event loop.

What `acquire()` and `try_acquire()` return is an object of its own, and nothing happens before it is awaited.
A coroutine would do, except for two mistakes. `if lock.try_acquire():` would be true whoever holds the lock: here it
raises TypeError. And Python's warning for a forgotten `await` would name no lock: here it does, and says what to write.

That warning comes from a finaliser, and an interrupt that strikes in a finaliser is lost. So only an attempt that was
never awaited has one: awaiting changes its class to one without a finaliser, in one step of C.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from abc import ABCMeta
from asyncio import current_task
from collections.abc import Collection, Coroutine, Generator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, TypeVar

from gripfast.api.aio.lease import AsyncLease
from gripfast.api.lock import AnyLock, still_held
from gripfast.api.misuse import NEEDS_ASYNC_WITH, Honest, exact, unknown_option
from gripfast.api.settings import LOCKS_WAIT, checked_wait
from gripfast.core.acquire import acquire
from gripfast.core.ledger import Entry
from gripfast.core.ports import Taken
from gripfast.interrupts.scope import ByTasks, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.aio.locks import AsyncLeases
    from gripfast.api.typed import NothingElse
    from gripfast.api.within import InTransaction

T = TypeVar("T")
L = TypeVar("L", bound="AsyncLease | AsyncLeases")


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
        wait = self._settings.wait if wait is LOCKS_WAIT else checked_wait(wait)  # `patience`, without a call
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

    async def _obtain(self, patience: float | None, entry: Entry = False) -> AsyncLease:
        started = boottime()
        answer = await self._acquire(patience, entry)
        if isinstance(answer, Taken):
            raise self._settings.timed_out(boottime() - started, answer)
        return answer

    async def _try(self, entry: Entry) -> AsyncLease | None:
        answer = await self._acquire(0.0, entry)
        return None if isinstance(answer, Taken) else answer

    async def _acquire(self, patience: float | None, entry: Entry = False) -> AsyncLease | Taken:
        client, settings = self._client, self._settings
        runtime = client._start()
        held = client._held_here() if settings.reentrant else None
        state = None if held is None else still_held(held, self.name)
        if state is None:
            answer = await acquire(runtime.env, settings.want, patience, entry)
            if isinstance(answer, Taken):
                return answer
            state = answer
            if (task := current_task(runtime.loop)) is not None:
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
    def __aexit__(scope: Scope, *exc: Any) -> Coroutine[Any, Any, None]:  # pyright: ignore[reportGeneralTypeIssues]
        scope.lock._client._check_loop()  # before anything is left
        return scope.leave()._end(*exc[:2])  # type: ignore[no-any-return] # no coroutine more than it needs


class Acquirer(Protocol):
    """A lock, or several."""

    def _described(self) -> str: ...

    def _acquire(self, patience: None, entry: Entry = False) -> Coroutine[Any, Any, Any]: ...

    def _obtain(self, patience: float | None, entry: Entry = False) -> Coroutine[Any, Any, Any]: ...

    def _try(self, entry: Entry) -> Coroutine[Any, Any, Any]: ...


_OF_LEASES = {name for name in dir(AsyncLease) if not name.startswith("_")} | {"tokens", "slots", "downgrade"}


class _HonestCoroutine(Honest, ABCMeta):
    """The class of both."""


class _Attempt(Coroutine[Any, Any, T], metaclass=_HonestCoroutine):
    """An awaited attempt. A task may run it like a coroutine."""

    __slots__ = ("_entry", "_lease", "_lock", "_patience", "_steps")

    _lacks: ClassVar[Collection[str]] = _OF_LEASES
    _when_awaited: ClassVar[Any]
    _call: ClassVar[str]
    _instead: ClassVar[str]
    _lease: Any

    def __init__(self, lock: Acquirer, patience: float | None) -> None:
        self._lock = lock
        self._patience = patience
        caller = sys._getframe(2)
        self._entry = caller.f_code, caller.f_lasti
        self._steps: Coroutine[Any, Any, T] | None = None

    def _start(self) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, T]:
        if self.__class__ is self._when_awaited:
            raise self._used_twice()
        steps = self._start().__await__()
        self.__class__ = self._when_awaited
        return steps

    def _used_twice(self) -> RuntimeError:
        return RuntimeError(f"{self._described()} was used before: call it again for another lease")

    def send(self, value: Any) -> Any:
        return self._begun().send(value)

    def throw(self, *exc: Any) -> Any:
        return self._begun().throw(*exc)

    def close(self) -> None:
        self._begun().close()

    def _begun(self) -> Coroutine[Any, Any, T]:
        if self._steps is None:
            self._steps = self._start()
            self.__class__ = self._when_awaited
        return self._steps

    def __bool__(self) -> None:  # not bool, so a type checker may refuse the question; nor NoReturn, which hides code
        if sys._getframe(1).f_globals.get("__name__", "").startswith("asyncio."):
            # Python 3.12 and newer ask whether a task has a coroutine, to describe the task.
            return True  # type: ignore[return-value] # pyright: ignore[reportReturnType]
        self.__class__ = self._when_awaited  # one message is enough
        raise TypeError(f"{self._described()} must be awaited first: {self._instead}")

    def _described(self) -> str:
        return f"{self._call} of {self._lock._described()}"

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in self._lacks]


class _Awaited:
    """An attribute that only the lease has: an `await` is missing."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, attempt: _Attempt[Any] | None, kind: type) -> NoReturn:
        if attempt is None:
            raise AttributeError(f"{kind.__name__} has no {self._name!r}", name=self._name, obj=None)
        what = f"{attempt._described()} has no {self._name!r} until it is awaited: {attempt._instead}"
        raise AttributeError(what, name=self._name, obj=None)


for _name in _OF_LEASES:
    setattr(_Attempt, _name, _Awaited(_name))


class _Acquiring(_Attempt[L]):
    __slots__ = ()
    _call = "acquire()"
    _instead = "write `async with lock:`, or `lease = await lock.acquire()`"

    def _start(self) -> Coroutine[Any, Any, L]:
        if self._patience is None:
            return self._lock._acquire(None, self._entry)  # who waits for ever is never told that it is taken
        return self._lock._obtain(self._patience, self._entry)

    async def __aenter__(self) -> L:
        if self.__class__ is self._when_awaited:
            raise self._used_twice()
        self.__class__ = self._when_awaited
        self._lease = lease = await self._lock._obtain(self._patience, True)
        await lease.__aenter__()
        return lease  # type: ignore[no-any-return]

    async def __aexit__(self, *exc: Any) -> None:
        await self._lease.__aexit__(*exc)


class _Trying(_Attempt[L | None]):
    __slots__ = ()
    _call = "try_acquire()"
    _instead = "write `lease = await lock.try_acquire()`, which is None if someone else holds the lock"

    def _start(self) -> Coroutine[Any, Any, L | None]:
        return self._lock._try(self._entry)


class _AcquiringOne(_Acquiring["AsyncLease"]):
    __slots__ = ()


class _AcquiringAll(_Acquiring["AsyncLeases"]):
    __slots__ = ()
    _instead = "write `async with locks:`, or `leases = await locks.acquire()`"


class _TryingOne(_Trying["AsyncLease"]):
    __slots__ = ()


class _TryingAll(_Trying["AsyncLeases"]):
    __slots__ = ()
    _instead = "write `leases = await locks.try_acquire()`, which is None if someone else holds one of the locks"


def _warn(attempt: _Attempt[Any]) -> None:
    """As Python does it for coroutines."""
    if hasattr(attempt, "_steps"):  # an interrupt may have struck before it was made
        message = f"{attempt._described()} was never awaited, so nothing was acquired: {attempt._instead}"
        warnings.warn(message, RuntimeWarning, stacklevel=2, source=attempt)


class Acquiring(_AcquiringOne):
    """From `acquire()` or `adopt()`: await it, or use `async with`."""

    __slots__ = ()
    __del__ = _warn


class AcquiringAll(_AcquiringAll):
    """From `acquire()` of several locks: await it, or use `async with`."""

    __slots__ = ()
    __del__ = _warn


class Trying(_TryingOne):
    """A `try_acquire()`, to be awaited."""

    __slots__ = ()
    __del__ = _warn


class TryingAll(_TryingAll):
    """The same of several locks."""

    __slots__ = ()
    __del__ = _warn


for _awaited in (_AcquiringOne, _AcquiringAll, _TryingOne, _TryingAll):
    _awaited._when_awaited = _awaited
