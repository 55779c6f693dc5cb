"""`@client.limited(…)`, `@client.read_locked(…)` and `@client.write_locked(…)`: what `locked` is for a lock, for
semaphores and read/write locks. `api/aio/permit_decorators.py` has the same for an AsyncClient."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from gripfast.api.base import AnyClient
from gripfast.api.decorator import Busy, LockedBy, check_decoration, locked_async, locked_plain
from gripfast.api.misuse import needs, no_truth
from gripfast.api.words import OF_PERMIT_DECORATORS
from gripfast.core import rules
from gripfast.errors import ConfigurationError, LockTimeout

if TYPE_CHECKING:
    from typing import Unpack

    from gripfast.api.typed import AsyncLockedOr, LockedOr, PermitKwargs

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


class PermitsBy(LockedBy, lacks=OF_PERMIT_DECORATORS):
    """What these decorators return."""

    __bool__ = no_truth(
        "it decorates functions. To see who has permits, write client.inspect(name, kind='semaphore') or "
        "client.inspect(name, kind='rwlock')"
    )


class PermitDecorators(AnyClient):
    """For threads."""

    @overload
    def limited(
        self,
        name: str,
        limit: int,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[PermitKwargs[Any]],
    ) -> Callable[[F], F]: ...

    @overload
    def limited(
        self, name: str, limit: int, *, busy: Literal["skip"], **settings: Unpack[PermitKwargs[Any]]
    ) -> LockedOr[None]: ...

    @overload
    def limited(  # type: ignore[overload-overlap] # the first that fits counts: what can be awaited is awaited
        self,
        name: str,
        limit: int,
        *,
        busy: Callable[[LockTimeout], Awaitable[T]],
        **settings: Unpack[PermitKwargs[Any]],
    ) -> AsyncLockedOr[T]: ...

    @overload
    def limited(
        self, name: str, limit: int, *, busy: Callable[[LockTimeout], T], **settings: Unpack[PermitKwargs[Any]]
    ) -> LockedOr[T]: ...

    @needs("limit")
    def limited(
        self,
        name: str,
        limit: int,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[PermitKwargs[Any]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold one permit of a semaphore while the function runs, so that at most `limit` calls run at the
        same time, on all machines together. With a placeholder in the name, such as `{user_id}`, each user has
        this limit.

        `settings` are those of `semaphore()`: ttl, renew, max_hold, label, on_lost, group, wait. The name, the `group`
        and `busy` are as in `locked()`. Coroutine functions work, too. Inside the function,
        `gripfast.current_lease(SemaphoreLease)` returns the lease, which has the `slots`.
        """
        return _decorator(self, "limited", semaphore_of, name, busy, {"limit": limit, **settings})

    @overload
    def read_locked(
        self,
        name: str,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[PermitKwargs[Any]],
    ) -> Callable[[F], F]: ...

    @overload
    def read_locked(
        self, name: str, *, busy: Literal["skip"], **settings: Unpack[PermitKwargs[Any]]
    ) -> LockedOr[None]: ...

    @overload
    def read_locked(  # type: ignore[overload-overlap] # the first that fits counts: what can be awaited is awaited
        self, name: str, *, busy: Callable[[LockTimeout], Awaitable[T]], **settings: Unpack[PermitKwargs[Any]]
    ) -> AsyncLockedOr[T]: ...

    @overload
    def read_locked(
        self, name: str, *, busy: Callable[[LockTimeout], T], **settings: Unpack[PermitKwargs[Any]]
    ) -> LockedOr[T]: ...

    def read_locked(
        self,
        name: str,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[PermitKwargs[Any]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold the `read()` of the read/write lock with this name while the function runs. Others may read
        meanwhile, but nobody writes.

        `settings` are those of `rwlock()`: ttl, renew, max_hold, label, on_lost, group, wait. The name, the `group` and
        `busy` are as in `locked()`. Coroutine functions work, too.
        """
        return _decorator(self, "read_locked", reader_of, name, busy, settings)

    @overload
    def write_locked(
        self,
        name: str,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[PermitKwargs[Any]],
    ) -> Callable[[F], F]: ...

    @overload
    def write_locked(
        self, name: str, *, busy: Literal["skip"], **settings: Unpack[PermitKwargs[Any]]
    ) -> LockedOr[None]: ...

    @overload
    def write_locked(  # type: ignore[overload-overlap] # the first that fits counts: what can be awaited is awaited
        self, name: str, *, busy: Callable[[LockTimeout], Awaitable[T]], **settings: Unpack[PermitKwargs[Any]]
    ) -> AsyncLockedOr[T]: ...

    @overload
    def write_locked(
        self, name: str, *, busy: Callable[[LockTimeout], T], **settings: Unpack[PermitKwargs[Any]]
    ) -> LockedOr[T]: ...

    def write_locked(
        self,
        name: str,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[PermitKwargs[Any]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold the `write()` of the read/write lock with this name while the function runs. Nobody else
        reads or writes meanwhile.

        Everything else is as in `read_locked()`. Inside the function, `gripfast.current_lease(WriteLease)` returns the
        lease, which has `downgrade()`.
        """
        return _decorator(self, "write_locked", writer_of, name, busy, settings)


Make = Callable[..., Any]
"""Called with a client, a name and settings, it makes what is acquired."""


def semaphore_of(client: Any, name: str, **settings: Any) -> Any:
    return client.semaphore(name, **settings)


def reader_of(client: Any, name: str, **settings: Any) -> Any:
    return client.rwlock(name, **settings).read()


def writer_of(client: Any, name: str, **settings: Any) -> Any:
    return client.rwlock(name, **settings).write()


def _decorator(
    client: Any, method: str, make: Make, name: str, busy: Busy, settings: Mapping[str, Any]
) -> Callable[[Any], Any]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):
            return locked_async(_of_twin(client, make), name, busy, settings)(function)
        return locked_plain(functools.partial(make, client), name, busy, settings)(function)

    check(client, method, make, name, busy, settings)
    return PermitsBy(decorate)


def _of_twin(client: Any, make: Make) -> Make:
    """Of the loop in which the function is called."""

    def made_here(name: str, **settings: Any) -> Any:
        return make(client._twins.here(), name, **settings)

    return made_here


def check(client: Any, method: str, make: Make, name: str, busy: Busy, settings: Mapping[str, Any]) -> None:
    """What is wrong is told where the function is decorated, not at its first call."""
    if inspect.isroutine(name):
        raise ConfigurationError(
            f"{method}() needs a name: to decorate a function, write @client.{method}(name, …). {rules.FROM_ARGUMENTS}"
        )
    check_decoration(busy, settings, method)
    make(client, name, **settings)
