"""`gripfast.current_lease()`: the lease that a decorated function runs with.

A context variable leads to it. Tasks and callbacks copy the context in which they were made, and may outlive the call
of the function by far. So a context has only an entry for the call: it knows the lease weakly, and is emptied when the
call ends. No context keeps a lease alive, and a task that outlives the call gets an error that says so.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, overload

from gripfast.errors import ConfigurationError

if TYPE_CHECKING:
    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.lease import Lease

L = TypeVar("L", bound="Lease")
A = TypeVar("A", bound="AsyncLease")

_NOT_HERE = (
    "no lease here: current_lease() works in a function that is decorated with @client.locked(…) or the like, or is "
    "called by election.run(…), while that function runs. In a `with` block, take the lease from `with lock as lease`"
)
_IN_FASTAPI = (
    ". In an endpoint of FastAPI, take it as an argument: `lease: Annotated[gripfast.AsyncLease, Depends(locked(…))]`"
)
"""FastAPI runs what it depends on in another context."""
_ENDED = (
    "the decorated function that started this task or callback has ended, and its lock was released: await the task "
    "inside the function, or acquire the lock in the task"
)


@overload
def current_lease() -> Lease | AsyncLease: ...


@overload
def current_lease(kind: type[L]) -> L: ...


@overload
def current_lease(kind: type[A]) -> A: ...


def current_lease(kind: type[Lease] | type[AsyncLease] | None = None) -> Lease | AsyncLease:
    """The lease of the decorated function that runs now; if one such function has called another, that of the inner
    one. Use it to send the token with what you write, and to check that the lock is still held:

        @client.locked("report:{user_id}")
        def report(user_id: int) -> None:
            lease = gripfast.current_lease()
            write(user_id, lease.token)
            lease.ensure_held()

    It is a Lease in a plain function and an AsyncLease in a coroutine function. No type checker can know which of them
    runs, so the type is `Lease | AsyncLease`. That is enough for what is the same in both, such as `token`, `held` and
    `ensure_held()`. For `extend()`, `release()` and `lost.wait()`, which have to be awaited in a coroutine function and
    not elsewhere, name the class: `current_lease(AsyncLease)` returns an AsyncLease, or raises ConfigurationError, and
    a type checker finds the `await` that is missing. Name the class, too, if you need what only some leases have:
    `current_lease(SemaphoreLease).slots`, in a function that is decorated with `@client.limited(…)`.

    Outside a decorated function it raises ConfigurationError. It follows the rules of `contextvars`: a task that the
    function starts, and `asyncio.to_thread`, see the lease until the function has ended. A thread that you start
    yourself does not. In a `with` block, use `with lock as lease`.
    """
    call = _innermost.get()
    if call is None:
        raise ConfigurationError(_NOT_HERE + (_IN_FASTAPI if "gripfast.contrib.fastapi" in sys.modules else ""))
    lease = call.lease()
    if lease is None:
        raise ConfigurationError(_ENDED)
    if kind is not None and not isinstance(lease, kind):
        raise ConfigurationError(
            f"the lease here is of class {type(lease).__name__}, not {kind.__name__}: use "
            f"current_lease({type(lease).__name__})"
        )
    return lease


def ensure_all_held() -> None:
    """Raise LeaseLost if a lease is lost that one of the decorated functions runs with, the innermost first."""
    call = _innermost.get()
    while call is not None:
        lease, call = call.lease(), call._outer
        if lease is not None:
            lease.ensure_held()


class _Call:
    """One call of a decorated function."""

    __slots__ = ("_lease", "_outer")

    def __init__(self, lease: Lease | AsyncLease) -> None:
        self._lease: weakref.ref[Lease | AsyncLease] | None = weakref.ref(lease)
        self._outer: _Call | None = None

    def lease(self) -> Lease | AsyncLease | None:
        """None once the call has ended. Read once: it may end meanwhile, on another thread."""
        known = self._lease
        return None if known is None else known()

    def begin(self) -> None:
        self._outer = _innermost.get()
        _innermost.set(self)

    def end(self) -> None:
        """A second time it does nothing. The context may be another one, if nobody has awaited the function to its
        end. Nothing is kept: calls whose tasks call again, for ever, would make an endless chain."""
        if _innermost.get() is self:
            _innermost.set(self._outer)
        self._lease = self._outer = None


_innermost: ContextVar[_Call | None] = ContextVar("gripfast.current_lease", default=None)


def call_with(lease: Lease, function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Call the function; meanwhile this is the current lease. One interrupt can't skip both clauses."""
    call = _Call(lease)
    try:
        try:
            call.begin()
            return function(*args, **kwargs)
        finally:
            call.end()
    finally:
        call.end()


async def await_with(
    lease: AsyncLease, function: Callable[..., Awaitable[Any]], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Any:
    """The same for a coroutine function."""
    call = _Call(lease)
    try:
        try:
            call.begin()
            return await function(*args, **kwargs)
        finally:
            call.end()
    finally:
        call.end()
