"""What `acquire()` and `try_acquire()` of a client for tasks return.

It is an object of its own, and nothing happens before it is awaited. A coroutine would do, except for two mistakes.
`if lock.try_acquire():` would be true whoever holds the lock: here it raises TypeError. And Python's warning for a
forgotten `await` would name no lock: here it does, and says what to write.

That warning comes from a finaliser, and an interrupt that strikes in a finaliser is lost. So only an attempt that was
never awaited has one: awaiting changes its class to one without a finaliser, in one step of C.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

if TYPE_CHECKING:
    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.aio.locks import AsyncLeases

T = TypeVar("T")
L = TypeVar("L", "AsyncLease", "AsyncLeases")


class Acquirer(Protocol):
    """A lock, or several."""

    def _described(self) -> str: ...

    def _acquire(self, patience: None) -> Coroutine[Any, Any, Any]: ...

    def _obtain(self, patience: float | None, in_block: bool = False) -> Coroutine[Any, Any, Any]: ...

    def _try(self) -> Coroutine[Any, Any, Any]: ...


class _Attempt(Coroutine[Any, Any, T]):
    """An awaited attempt. A task may run it like a coroutine."""

    __slots__ = ("_lease", "_lock", "_patience", "_steps")

    _when_awaited: ClassVar[Any]
    _call: ClassVar[str]
    _instead: ClassVar[str]
    _lease: Any

    def __init__(self, lock: Acquirer, patience: float | None) -> None:
        self._lock = lock
        self._patience = patience
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


class _Acquiring(_Attempt[L]):
    __slots__ = ()
    _call = "acquire()"
    _instead = "write `async with lock:`, or `lease = await lock.acquire()`"

    def _start(self) -> Coroutine[Any, Any, L]:
        if self._patience is None:
            return self._lock._acquire(None)  # who waits for ever is never told that it is taken
        return self._lock._obtain(self._patience)

    async def __aenter__(self) -> L:
        if self.__class__ is self._when_awaited:
            raise self._used_twice()
        self.__class__ = self._when_awaited
        self._lease = lease = await self._lock._obtain(self._patience, in_block=True)
        await lease.__aenter__()
        return lease  # type: ignore[no-any-return]

    async def __aexit__(self, *exc: Any) -> None:
        await self._lease.__aexit__(*exc)


class _Trying(_Attempt[L | None]):
    __slots__ = ()
    _call = "try_acquire()"
    _instead = "write `lease = await lock.try_acquire()`, which is None if someone else holds the lock"

    def _start(self) -> Coroutine[Any, Any, L | None]:
        return self._lock._try()


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
    """From `acquire()`: await it, or use `async with`."""

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
