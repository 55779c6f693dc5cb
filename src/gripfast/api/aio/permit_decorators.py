"""`@client.limited(…)`, `@client.read_locked(…)` and `@client.write_locked(…)` of an AsyncClient, for coroutine
functions."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from gripfast.api.base import AnyClient
from gripfast.api.decorator import Busy, locked_async
from gripfast.api.misuse import needs
from gripfast.api.permit_decorators import Make, PermitsBy, check, reader_of, semaphore_of, writer_of
from gripfast.errors import LockTimeout

if TYPE_CHECKING:
    from typing import Unpack

    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.aio.permits import AsyncSemaphoreLease
    from gripfast.api.typed import AsyncLockedOr, PermitKwargs

F = TypeVar("F", bound="Callable[..., Coroutine[Any, Any, Any]]")
T = TypeVar("T")


class AsyncPermitDecorators(AnyClient):
    """For tasks."""

    @overload
    def limited(
        self,
        name: str,
        limit: int,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[PermitKwargs[AsyncSemaphoreLease]],
    ) -> Callable[[F], F]: ...

    @overload
    def limited(
        self, name: str, limit: int, *, busy: Literal["skip"], **settings: Unpack[PermitKwargs[AsyncSemaphoreLease]]
    ) -> AsyncLockedOr[None]: ...

    @overload
    def limited(
        self,
        name: str,
        limit: int,
        *,
        busy: Callable[[LockTimeout], Awaitable[T]],
        **settings: Unpack[PermitKwargs[AsyncSemaphoreLease]],
    ) -> AsyncLockedOr[T]: ...

    @overload
    def limited(
        self,
        name: str,
        limit: int,
        *,
        busy: Callable[[LockTimeout], T],
        **settings: Unpack[PermitKwargs[AsyncSemaphoreLease]],
    ) -> AsyncLockedOr[T]: ...

    @needs("limit")
    def limited(
        self,
        name: str,
        limit: int,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[PermitKwargs[AsyncSemaphoreLease]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold one permit of a semaphore while the coroutine runs, as `Client.limited`."""
        return _decorator(self, "limited", semaphore_of, name, busy, {"limit": limit, **settings})

    @overload
    def read_locked(
        self,
        name: str,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[PermitKwargs[AsyncLease]],
    ) -> Callable[[F], F]: ...

    @overload
    def read_locked(
        self, name: str, *, busy: Literal["skip"], **settings: Unpack[PermitKwargs[AsyncLease]]
    ) -> AsyncLockedOr[None]: ...

    @overload
    def read_locked(
        self, name: str, *, busy: Callable[[LockTimeout], Awaitable[T]], **settings: Unpack[PermitKwargs[AsyncLease]]
    ) -> AsyncLockedOr[T]: ...

    @overload
    def read_locked(
        self, name: str, *, busy: Callable[[LockTimeout], T], **settings: Unpack[PermitKwargs[AsyncLease]]
    ) -> AsyncLockedOr[T]: ...

    def read_locked(
        self,
        name: str,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[PermitKwargs[AsyncLease]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold the `read()` of a read/write lock while the coroutine runs, as `Client.read_locked`."""
        return _decorator(self, "read_locked", reader_of, name, busy, settings)

    @overload
    def write_locked(
        self,
        name: str,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[PermitKwargs[AsyncLease]],
    ) -> Callable[[F], F]: ...

    @overload
    def write_locked(
        self, name: str, *, busy: Literal["skip"], **settings: Unpack[PermitKwargs[AsyncLease]]
    ) -> AsyncLockedOr[None]: ...

    @overload
    def write_locked(
        self, name: str, *, busy: Callable[[LockTimeout], Awaitable[T]], **settings: Unpack[PermitKwargs[AsyncLease]]
    ) -> AsyncLockedOr[T]: ...

    @overload
    def write_locked(
        self, name: str, *, busy: Callable[[LockTimeout], T], **settings: Unpack[PermitKwargs[AsyncLease]]
    ) -> AsyncLockedOr[T]: ...

    def write_locked(
        self,
        name: str,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[PermitKwargs[AsyncLease]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold the `write()` of a read/write lock while the coroutine runs, as `Client.write_locked`."""
        return _decorator(self, "write_locked", writer_of, name, busy, settings)


def _decorator(
    client: Any, method: str, make: Make, name: str, busy: Busy, settings: Mapping[str, Any]
) -> Callable[[Any], Any]:
    check(client, method, make, name, busy, settings)
    return PermitsBy(locked_async(functools.partial(make, client), name, busy, settings))
