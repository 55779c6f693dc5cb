"""The client for the tasks of one event loop."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from gripfast.api import keeping
from gripfast.api.aio.lease import AsyncLease
from gripfast.api.aio.lock import Acquiring, AsyncLock
from gripfast.api.aio.permit_decorators import AsyncPermitDecorators
from gripfast.api.base import forced, reached, was_forced
from gripfast.api.client import HeldHere
from gripfast.api.config import Config
from gripfast.api.decorator import LockedBy, check_decoration, locked_async
from gripfast.api.misuse import NEEDS_ASYNC_WITH, exact, needs, unknown_option
from gripfast.api.words import OF_ASYNC_CLIENTS
from gripfast.core import rules
from gripfast.core.ports import Kind, LockInfo, PermitInfo, Store, permits_of
from gripfast.errors import ClientClosed, LockTimeout, Reason
from gripfast.machine import this
from gripfast.runtime.aio import AioRuntime, loop_here, running_loop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine
    from typing import Never, Unpack

    from gripfast.api.aio.election import AsyncElection
    from gripfast.api.aio.locks import AsyncLeases, AsyncLocks
    from gripfast.api.aio.once import AsyncOnce
    from gripfast.api.aio.permits import AsyncRWLock, AsyncSemaphore, AsyncSemaphoreLease
    from gripfast.api.typed import AsyncLockedOr, LockKwargs, NothingElse

F = TypeVar("F", bound="Callable[..., Coroutine[Any, Any, Any]]")
T = TypeVar("T")


class AsyncClient(AsyncPermitDecorators, lacks=OF_ASYNC_CLIENTS):
    """Locks for the tasks of one event loop. The client belongs to the loop in which it is first used. Leaving
    `async with client` closes it.

    In another loop, or outside a loop, every `await` on it raises ConfigurationError and changes nothing. `held`,
    `remaining()`, `ensure_held()` and `lost.is_set()` only read the clock, and work anywhere.
    """

    _how_to_make = "gripfast.connect_async(url)"
    if not TYPE_CHECKING:  # which has words of its own
        __enter__ = NEEDS_ASYNC_WITH

    def __init__(self, config: Config = None) -> None:  # type: ignore[assignment]
        super().__init__(config)
        self._runtime: AioRuntime | None = None
        self._held: weakref.WeakKeyDictionary[asyncio.Task[Any], HeldHere] = weakref.WeakKeyDictionary()

    @exact
    def lock(
        self,
        name: str,
        ttl: float | None = None,
        *more: Never,
        renew: bool = True,
        max_hold: float | None = None,
        reentrant: bool = False,
        label: str | None = None,
        on_lost: Callable[[AsyncLease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        min_hold: float | None = None,
        lazy_release: bool = False,
        **wrong: Unpack[NothingElse],
    ) -> AsyncLock:
        """A lock with this name. Does no I/O.

        The settings are those of `Client.lock`. `reentrant` lets the task that holds the lock acquire it again.
        `on_lost` may be a coroutine function, and runs as a task.
        """
        if more or wrong:
            raise unknown_option(AsyncClient.lock, wrong, ttl, *more)
        settings = self._settings(
            name,
            ttl,
            renew=renew,
            max_hold=max_hold,
            reentrant=reentrant,
            label=label,
            on_lost=on_lost,
            group=group,
            wait=wait,
            min_hold=min_hold,
            lazy_release=lazy_release,
        )
        return AsyncLock(self, settings)

    @exact
    def locks(
        self,
        *names: str,
        ttl: float | None = None,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[AsyncLeases, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        lazy_release: bool = False,
        **wrong: Unpack[NothingElse],
    ) -> AsyncLocks:
        """Several locks, to be acquired together or not at all: `async with client.locks("a", "b") as leases`. Does no
        I/O. The settings are those of `Client.locks`; `on_lost` may be a coroutine function."""
        if wrong:
            raise unknown_option(AsyncClient.locks, wrong)
        from gripfast.api.aio.locks import AsyncLocks  # most programs need one lock at a time

        settings = self._settings_of_several(
            names, ttl, label=label, on_lost=on_lost, group=group, wait=wait, lazy_release=lazy_release
        )
        return AsyncLocks(self, settings, rules.checked_max_hold(max_hold))

    @exact
    def election(
        self,
        name: str,
        value: str = "",
        ttl: float | None = None,
        *,
        max_hold: float | None = None,
        on_lost: Callable[[AsyncLease, Reason], object] | None = None,
        group: str | None = None,
        **wrong: Unpack[NothingElse],
    ) -> AsyncElection:
        """An election with this name: one leader at a time. Does no I/O. The settings are those of `Client.election`;
        `on_lost` may be a coroutine function."""
        if wrong:
            raise unknown_option(AsyncClient.election, wrong)
        from gripfast.api.aio.election import AsyncElection  # most programs need no leader
        from gripfast.api.election import settings_of

        return AsyncElection(self, self._settings(name, ttl, **settings_of(value, on_lost, max_hold, group)))

    def elected(
        self,
        name: str,
        value: str = "",
        ttl: float | None = None,
        *,
        max_hold: float | None = None,
        on_lost: Callable[[AsyncLease, Reason], object] | None = None,
        group: str | None = None,
    ) -> Callable[[F], F]:
        """A decorator for coroutine functions, as `Client.elected`."""
        from gripfast.api.aio.election import elected_async

        more: dict[str, Any] = {"value": value, "ttl": ttl, "max_hold": max_hold, "on_lost": on_lost}
        self.election(name, **more, group=group)  # what is wrong with them is told here, not at the first call
        return elected_async(self.election, name, {**more, "group": name if group is None else group})  # type: ignore[return-value]

    @exact
    @needs("limit")
    def semaphore(
        self,
        name: str,
        limit: int,
        ttl: float | None = None,
        *,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[AsyncSemaphoreLease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        **wrong: Unpack[NothingElse],
    ) -> AsyncSemaphore:
        """A semaphore with this name, which has `limit` permits. Does no I/O. The settings are those of
        `Client.semaphore`; `on_lost` may be a coroutine function."""
        if wrong:
            raise unknown_option(AsyncClient.semaphore, wrong)
        settings = self._settings_of_semaphore(
            name, limit, ttl, renew=renew, max_hold=max_hold, label=label, on_lost=on_lost, group=group, wait=wait
        )
        from gripfast.api.aio.permits import AsyncSemaphore

        return AsyncSemaphore(self, settings)

    @exact
    def rwlock(
        self,
        name: str,
        ttl: float | None = None,
        *,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[AsyncLease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        **wrong: Unpack[NothingElse],
    ) -> AsyncRWLock:
        """A read/write lock with this name: many may `read()` at the same time, or one may `write()`. Does no I/O. The
        settings are those of `Client.rwlock`; `on_lost` may be a coroutine function."""
        if wrong:
            raise unknown_option(AsyncClient.rwlock, wrong)
        read, write = self._settings_of_rwlock(
            name, ttl, renew=renew, max_hold=max_hold, label=label, on_lost=on_lost, group=group, wait=wait
        )
        from gripfast.api.aio.permits import AsyncRWLock

        return AsyncRWLock(self, read, write)

    @exact
    @needs("keep")
    def once(
        self,
        name: str,
        *,
        keep: float,
        wait: float | None = 0.0,
        ttl: float | None = None,
        label: str | None = None,
        group: str | None = None,
        done_on_error: bool = False,
        **wrong: Unpack[NothingElse],
    ) -> AsyncOnce:
        """Something that is to be done once: `async with client.once(…) as run:` and inside it `if run:`. The settings
        are those of `Client.once`. If the lease is lost, the block is cancelled."""
        if wrong:
            raise unknown_option(AsyncClient.once, wrong)
        from gripfast.api.aio.once import AsyncOnce  # most programs need locks

        settings = keeping.settings_of_once(self, name, ttl, label=label, group=group, wait=wait)
        return AsyncOnce(self, settings, keep, rules.checked_flag("done_on_error", done_on_error))

    @overload
    def locked(
        self,
        name: str,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[LockKwargs[AsyncLease]],
    ) -> Callable[[F], F]: ...

    @overload
    def locked(
        self, name: str, *, busy: Literal["skip"], **settings: Unpack[LockKwargs[AsyncLease]]
    ) -> AsyncLockedOr[None]: ...

    @overload
    def locked(
        self, name: str, *, busy: Callable[[LockTimeout], Awaitable[T]], **settings: Unpack[LockKwargs[AsyncLease]]
    ) -> AsyncLockedOr[T]: ...

    @overload
    def locked(
        self, name: str, *, busy: Callable[[LockTimeout], T], **settings: Unpack[LockKwargs[AsyncLease]]
    ) -> AsyncLockedOr[T]: ...

    def locked(
        self,
        name: str,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[LockKwargs[AsyncLease]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold the lock while the coroutine runs. A placeholder in the name, such as `{user_id}`, is
        replaced by the function's argument of that name.

        `busy` and `settings` are those of `Client.locked`.
        """
        check_decoration(busy, settings)
        self.lock(name, **settings)  # what is wrong with them is told here, not at the first call
        return LockedBy(locked_async(self.lock, name, busy, settings))

    @overload
    async def inspect(self, name: str, kind: Literal["lock"] = "lock") -> LockInfo | None: ...

    @overload
    async def inspect(self, name: str, kind: Literal["semaphore", "rwlock"]) -> PermitInfo | None: ...

    async def inspect(
        self, name: str, kind: Literal["lock", "semaphore", "rwlock"] = "lock"
    ) -> LockInfo | PermitInfo | None:
        """Who holds the lock, or None. With `kind`: who holds permits of the semaphore or read/write lock, or None."""
        if kind != "lock":
            found = reached(await permits_of(self._store()).inspect_permits(self._key(name), self._check_kind(kind)))
            return found and self._shown_permits(found)
        info = reached(await self._store().inspect(self._key(name)))
        return info and self._shown(info)

    @overload
    def list(self, prefix: str = "", kind: Literal["lock"] = "lock") -> AsyncIterator[LockInfo]: ...

    @overload
    def list(self, prefix: str = "", *, kind: Literal["semaphore", "rwlock"]) -> AsyncIterator[PermitInfo]: ...

    def list(
        self, prefix: str = "", kind: Literal["lock", "semaphore", "rwlock"] = "lock"
    ) -> AsyncIterator[LockInfo] | AsyncIterator[PermitInfo]:
        """Iterate over the held locks, ordered by name; they are read page by page. On Redis and Redlock the order is
        arbitrary, and a lock may occur twice. With `kind`, iterate over the semaphores or read/write locks that
        somebody holds. One call lists one kind. Write `async for info in client.list()`."""
        return self._list_locks(prefix) if kind == "lock" else self._list_permits(prefix, self._check_kind(kind))

    async def _list_locks(self, prefix: str) -> AsyncIterator[LockInfo]:
        prefix, after = self._config.prefix + rules.checked_prefix(prefix), None
        while True:
            page = reached(await self._store().page(prefix, after))
            for info in page.infos:
                yield self._shown(info)
            if (after := page.after) is None:
                return

    async def _list_permits(self, prefix: str, kind: Kind) -> AsyncIterator[PermitInfo]:
        prefix, after = self._config.prefix + rules.checked_prefix(prefix), None
        while True:
            page = reached(await permits_of(self._store()).page_permits(kind, prefix, after))
            for info in page.infos:
                yield self._shown_permits(info)
            if (after := page.after) is None:
                return

    @exact
    async def force_release(
        self,
        name: str,
        reason: str | None = None,
        *,
        kind: Literal["lock", "semaphore", "rwlock"] = "lock",
        owner: str | None = None,
        slot: int | None = None,
        **wrong: Unpack[NothingElse],
    ) -> bool:
        """For operators: release the lock, whoever holds it. True if someone held it. The next holder's token is still
        larger than all earlier ones. `reason`, `kind`, `owner` and `slot` are as in `Client.force_release`."""
        if wrong:
            raise unknown_option(AsyncClient.force_release, wrong)
        key, note = self._key(name), rules.checked_reason(reason)
        if kind != "lock" or owner is not None or slot is not None:
            return was_forced(name, note, reached(await self._forced_permits(key, kind, owner, slot, note)))
        was_held = reached(await forced(self._store(), key, note))
        return was_forced(name, note, was_held, not was_held and await keeping.done(self, key) is not None)

    def adopt(
        self,
        text: str,
        *,
        ttl: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[AsyncLease, Reason], object] | None = None,
        group: str | None = None,
    ) -> Acquiring:
        """Use it as `lease = await client.adopt(text)`, or as `async with client.adopt(text) as lease`. It takes over a
        lock that `lease.detach()`, or `gripfast acquire`, has detached on the same store. The settings are those of
        `Client.adopt`. Nothing happens without `await`."""
        from gripfast.api.aio.handover import Adopting, Detached
        from gripfast.api.handover import settings_of_adopted

        settings, former = settings_of_adopted(
            self, text, ttl, label, renew=renew, max_hold=max_hold, on_lost=on_lost, group=group
        )
        return Adopting(Detached(self, settings, former), None)

    async def forget(self, name: str) -> bool:
        """Forget what `once()` has recorded as done, so that it can be done again. True if it was recorded."""
        return await keeping.forget(self, self._key(name))

    async def aclose(self) -> None:
        """Release everything that is still held, and stop the background threads. Takes about 2 s at most, even if the
        store does not answer. A closed client can't be used again."""
        self._check_loop()
        self._is_closed = True
        if self._runtime is not None and self._runtime.pid == this.pid:
            await self._runtime.stop()

    def _close_soon(self) -> None:
        """From any thread, with or without its loop: begin to release what is held, and to end the thread."""
        self._is_closed = True
        runtime = self._making.run(lambda: self._runtime)  # one that is being made is either seen here, or never made
        if runtime is not None:
            runtime.stop_soon()

    def _await_end(self, seconds: float) -> None:
        if self._runtime is not None:
            self._runtime.join(seconds)

    def _check_loop(self) -> None:
        """Once it was used, it belongs to the loop in which that was."""
        runtime = self._runtime
        if runtime is not None and running_loop() is not runtime.loop:
            runtime.check_loop()

    def _store(self) -> Store:
        return self._start().env.store

    def _start(self) -> AioRuntime:
        runtime = self._runtime
        if (
            runtime is None
            or not runtime.is_running
            or runtime.pid != this.pid
            or self._is_closed
            or running_loop() is not runtime.loop
        ):
            if runtime is None or runtime.pid != this.pid:
                self._tell_if_apart(is_forked=runtime is not None)
            runtime = self._making.run(self._make)
            runtime.start()
        return runtime

    def _make(self) -> AioRuntime:
        """Under the guard: of two loops that use it first, at the same time, one has it."""
        if self._is_closed:
            raise ClientClosed
        if self._runtime is None or self._runtime.pid != this.pid:
            patience = self._config.patience
            loop_here()
            store, aside = self._config.factory.aio(patience.request_timeout)
            self._runtime = AioRuntime(store, aside, patience, self, self._observers())
        return self._runtime

    def _held_here(self) -> HeldHere:
        task = asyncio.current_task()
        assert task is not None
        return self._held.setdefault(task, weakref.WeakValueDictionary())

    async def __aenter__(self) -> AsyncClient:
        self._check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
