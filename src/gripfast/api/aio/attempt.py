"""What `AsyncLock.acquire()` and `try_acquire()` return. Nothing happens before it is awaited.

A coroutine would do, except for two mistakes. `if lock.try_acquire():` would be true whoever holds the lock: here it
raises TypeError. And Python's warning for a forgotten `await` would name no lock: here it does, and says what to write.

That warning comes from a finaliser, and an interrupt that strikes in a finaliser is lost. So only an attempt that was
never awaited has one: to await an attempt makes it an object of a class without it, in one step of C.
"""

from __future__ import annotations

import warnings
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

if TYPE_CHECKING:
    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.aio.lock import AsyncLock

T = TypeVar("T")


class _Attempt(Coroutine[Any, Any, T]):
    """Once awaited. A task may run it, too, as it runs a coroutine."""

    __slots__ = ("_lease", "_lock", "_patience", "_steps")

    _when_awaited: ClassVar[Any]
    _call: ClassVar[str]
    _instead: ClassVar[str]
    _lease: AsyncLease

    def __init__(self, lock: AsyncLock, patience: float | None) -> None:
        self._lock = lock
        self._patience = patience
        self._steps: Coroutine[Any, Any, T] | None = None

    def _start(self) -> Coroutine[Any, Any, T]:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._start().__await__()
        self.__class__ = self._when_awaited
        return steps

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

    def __bool__(self) -> NoReturn:
        self.__class__ = self._when_awaited  # one message is enough
        raise TypeError(f"{self._described()} has no truth before it is awaited: {self._instead}")

    def _described(self) -> str:
        return f"{self._call} of the lock {self._lock.name!r}"


class _Acquiring(_Attempt["AsyncLease"]):
    __slots__ = ()
    _call = "acquire()"
    _instead = "write `async with lock:`, or `lease = await lock.acquire()`"

    def _start(self) -> Coroutine[Any, Any, AsyncLease]:
        if self._patience is None:
            return self._lock._acquire(None)  # type: ignore[return-value] # who waits for ever is never told: taken
        return self._lock._obtain(self._patience)

    async def __aenter__(self) -> AsyncLease:
        self.__class__ = _Acquiring
        self._lease = await self._lock._obtain(self._patience, in_block=True)
        return await self._lease.__aenter__()

    async def __aexit__(self, *exc: Any) -> None:
        await self._lease.__aexit__(*exc)


class _Trying(_Attempt["AsyncLease | None"]):
    __slots__ = ()
    _call = "try_acquire()"
    _instead = "write `lease = await lock.try_acquire()`, which is None if someone else holds the lock"

    def _start(self) -> Coroutine[Any, Any, AsyncLease | None]:
        return self._lock._try()


def _warn(attempt: _Attempt[Any]) -> None:
    """As Python does it for coroutines."""
    if hasattr(attempt, "_steps"):  # an interrupt may have struck before it was made
        message = f"{attempt._described()} was never awaited, so nothing was acquired: {attempt._instead}"
        warnings.warn(message, RuntimeWarning, stacklevel=2, source=attempt)


class Acquiring(_Acquiring):
    """An `acquire()`: awaited, or entered with `async with`."""

    __slots__ = ()
    __del__ = _warn


class Trying(_Trying):
    """A `try_acquire()`, to be awaited."""

    __slots__ = ()
    __del__ = _warn


_Acquiring._when_awaited = _Acquiring
_Trying._when_awaited = _Trying
