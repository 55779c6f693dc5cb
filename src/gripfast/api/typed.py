"""What type checkers need to know of `locked()`, of its relatives, and of the settings of a lock. Nothing here does
anything at run time, so nothing else loads it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Generic, ParamSpec, Protocol, TypedDict, TypeVar, overload

from gripfast.errors import Reason

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", covariant=True)
L = TypeVar("L")


class PermitKwargs(TypedDict, Generic[L], total=False):
    """The settings of a semaphore or of a read/write lock, as keywords; `Client.lock` says what they mean. `L` is the
    kind of lease that `on_lost` is called with."""

    ttl: float | None
    renew: bool
    max_hold: float | None
    label: str | None
    on_lost: Callable[[L, Reason], object] | None
    group: str | None
    wait: float | None


class LockKwargs(PermitKwargs[L], total=False):
    """The settings of a lock, as keywords; `Client.lock` says what they mean. `L` is the kind of lease that `on_lost`
    is called with.

    Use it for the types of your own functions: `def my_lock(name: str, **settings: Unpack[LockKwargs[Lease]])`.
    """

    reentrant: bool
    min_hold: float | None
    lazy_release: bool


class NothingElse(TypedDict):
    """The type of keywords that are taken only to say what is meant (`api/misuse.py`): a type checker refuses them all.
    Never would do, if it did not refuse a `**LockKwargs` as well."""


class LockedOr(Protocol[T]):
    """The type of the decorator that `Client.locked(…, busy=…)` returns. A call of the decorated function returns what
    the function returns, or a `T` if the lock was busy: None with `busy="skip"`."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, Coroutine[Any, Any, R | T]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Callable[P, R | T]: ...


class AsyncLockedOr(Protocol[T]):
    """Like LockedOr, but only for coroutine functions: the type of the decorator that `AsyncClient.locked(…, busy=…)`
    returns, and `Client.locked(…, busy=…)` if `busy` is a coroutine function."""

    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, Coroutine[Any, Any, R | T]]: ...
