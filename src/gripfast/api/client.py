"""The client for threads, and what the one for tasks (`api/aio/client.py`) has in common with it.

A client owns its store, its watchdog and the leases made through it.

Forks: every action compares the pid. In a forked child a client makes a store and a watchdog of its own, and the leases
that the child inherited are not held.
"""

from __future__ import annotations

import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from gripfast.api import misuse
from gripfast.api.config import Config
from gripfast.api.decorator import LockedBy, check_busy, locked_async, locked_plain
from gripfast.api.kinds import Kinds, list_permits
from gripfast.api.lease import Lease
from gripfast.api.lock import Lock
from gripfast.api.loops import ClientPerLoop
from gripfast.api.misuse import OF_CLIENTS, NotLikeOthers, exact, made_by_hand, refuse_to_pickle, unknown_option
from gripfast.api.settings import LockSettings
from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ports import Capabilities, Hold, LockInfo, Loss, PermitInfo, Store, Unreachable, to_raise
from gripfast.errors import ClientClosed, LockTimeout, Reason, quoted
from gripfast.interrupts.guard import Guard
from gripfast.machine import boottime, this
from gripfast.runtime.blocking import BlockingRuntime, drive
from gripfast.runtime.here import task_here
from gripfast.runtime.parts import EXIT_PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Unpack

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.aio.lock import AsyncLock
    from gripfast.api.locks import Leases, Locks
    from gripfast.api.permits import RWLock, Semaphore, SemaphoreLease
    from gripfast.api.typed import AsyncLockedOr, LockedOr, LockKwargs, NothingElse
    from gripfast.runtime.observers import Observers

_log = logging.getLogger("gripfast.client")

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

HeldHere = weakref.WeakValueDictionary[str, LeaseState]
"""The leases of one thread or task, by name, for re-entry."""


class AnyClient(Kinds, NotLikeOthers, lacks=OF_CLIENTS):
    _how_to_make = "gripfast.connect(url)"
    __reduce_ex__ = refuse_to_pickle

    def __init__(self, config: Config = None) -> None:  # type: ignore[assignment]
        if not isinstance(config, Config):
            raise made_by_hand(type(self), self._how_to_make)
        self._config = config
        self._making = Guard()
        self._is_closed = False

    @property
    def where(self) -> str:
        """The engine's address, without a password."""
        return self._config.factory.where

    @property
    def capabilities(self) -> Capabilities:
        """What the store can do. Does no I/O."""
        return self._config.factory.capabilities

    def _settings(self, name: str, ttl: float | None, **others: Any) -> LockSettings:
        ttl = self._config.ttl if ttl is None else ttl
        return LockSettings(name, self._config.prefix, ttl=ttl, max_ttl=self._config.factory.max_ttl, **others)

    def _settings_of_several(self, names: tuple[str, ...], ttl: float | None, **others: Any) -> list[LockSettings]:
        return [
            self._settings(name, ttl, renew=True, max_hold=None, reentrant=False, **others)
            for name in misuse.checked_names(names)
        ]

    def _checked_ttl(self, ttl: float) -> float:
        return rules.checked_ttl(ttl, self._config.factory.max_ttl)

    def _key(self, name: str) -> str:
        """What the engine calls it."""
        return self._config.prefix + rules.checked_name(name)

    def _shown(self, info: LockInfo) -> LockInfo:
        """By the name that callers use."""
        return replace(info, name=info.name.removeprefix(self._config.prefix))

    def _observers(self) -> Observers | None:
        """For a runtime that is being made: one of a forked child has nothing of its parent's."""
        if not self._config.observers:
            return None
        from gripfast.runtime.observers import Observers

        return Observers(self._config.observers, self.where)

    def _tell_if_apart(self, is_forked: bool) -> None:
        """A forked or multiprocessing child may believe that it shares the locks of its parent."""
        if not self.capabilities.processes and (is_forked or _is_started_by_multiprocessing()):
            _log.warning(
                "this process has locks of its own in %s, because its memory is not shared with the process that "
                "started it. Use a store that processes share, such as sqlite:///locks.db",
                self.where,
            )

    def _store(self) -> Store:
        raise NotImplementedError

    async def _free(self, name: str, owner: str) -> Loss | None:
        """Release by its owner id what was acquired elsewhere; None, or why it was not that owner's."""
        return reached(await self._store().release(Hold(self._config.prefix + name, owner, self._config.ttl)))

    async def _renew(self, name: str, owner: str, ttl: float) -> Loss | None:
        """Renew by its owner id what was acquired elsewhere; None, or why it is not that owner's."""
        hold = Hold(self._config.prefix + name, owner, self._checked_ttl(ttl), shortens=True)
        return reached(reached(await self._store().renew([hold]))[0])

    def __repr__(self) -> str:
        return f"<{type(self).__name__} on {self.where}>"


class Client(AnyClient):
    """Locks for threads. Thread-safe. A context manager: leaving the block closes the client."""

    _drive = staticmethod(drive)

    def __init__(self, config: Config = None) -> None:  # type: ignore[assignment]
        super().__init__(config)
        self._runtime: BlockingRuntime | None = None
        self._here = _Here()
        self._twins = ClientPerLoop(lambda: _async_client(config))

    @exact
    def lock(
        self,
        name: str,
        ttl: float | None = None,
        *,
        renew: bool = True,
        max_hold: float | None = None,
        reentrant: bool = False,
        label: str | None = None,
        on_lost: Callable[[Lease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        **wrong: Unpack[NothingElse],
    ) -> Lock:
        """A lock with this name. Does no I/O.

        - `ttl`: seconds that a lease lasts unless it is renewed. The default is the ttl of `connect()`, or 30.
        - `renew`: if true, the client renews the lease every third of the ttl, as long as the process lives. If false,
          the lease ends at its ttl.
        - `max_hold`: the longest time that a lease may be held, in seconds. After that the client releases the lock,
          and the lease counts as lost.
        - `reentrant`: the thread that holds the lock may acquire it again. It gets another handle on the same lease.
        - `label`: says who holds the lock; `inspect()` and `LockTimeout` show it. At most 4096 UTF-8 bytes.
        - `on_lost`: a function that is called as `on_lost(lease, reason)`, on a new thread, when the lease is lost.
        - `group`: what observers and log lines call this lock and others like it. The store does not see it. At most
          512 UTF-8 bytes.
        - `wait`: how many seconds `with lock`, `acquire()` and `within()` wait for the lock before they raise
          LockTimeout, unless they are called with a `wait` of their own. None: for ever. `try_acquire()` never waits.
        """
        if wrong:
            raise unknown_option(Client.lock, wrong)
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
        )
        return Lock(self, settings)

    @exact
    def locks(
        self,
        *names: str,
        ttl: float | None = None,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[Leases, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        **wrong: Unpack[NothingElse],
    ) -> Locks:
        """Several locks, to be acquired together or not at all: `with client.locks("a", "b") as leases`. Does no I/O.

        Everybody acquires them in the same order, so two programs that need the same locks never wait for each other.
        `wait` is the time for all of them. `max_hold` counts from the moment at which all of them are held. `on_lost`
        is called once, when the first of them is lost. The other settings are those of `lock()`. The leases are always
        renewed, because the first one has to last until the last one is granted.

        Acquire all that you need with one `locks()`. If this thread has acquired one of them before, through this
        client, it raises ConfigurationError. It may raise LeaseLost, if one is lost while the others are waited for.
        """
        if wrong:
            raise unknown_option(Client.locks, wrong)
        settings = self._settings_of_several(names, ttl, label=label, on_lost=on_lost, group=group, wait=wait)
        from gripfast.api.locks import Locks  # most programs need one lock at a time

        return Locks(self, settings, rules.checked_max_hold(max_hold))

    @exact
    def semaphore(
        self,
        name: str,
        limit: int,
        ttl: float | None = None,
        *,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[SemaphoreLease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        **wrong: Unpack[NothingElse],
    ) -> Semaphore:
        """A semaphore with this name: `limit` permits, so that many may work at the same time. Does no I/O.

        Everybody has to come with the same limit: who comes with another one gets a ConfigurationError that names both.
        `resize()` changes it. The other settings are those of `lock()`. A lock and a semaphore of the same name have
        nothing to do with each other.
        """
        if wrong:
            raise unknown_option(Client.semaphore, wrong)
        settings = self._settings_of_semaphore(
            name, limit, ttl, renew=renew, max_hold=max_hold, label=label, on_lost=on_lost, group=group, wait=wait
        )
        from gripfast.api.permits import Semaphore

        return Semaphore(self, settings)

    @exact
    def rwlock(
        self,
        name: str,
        ttl: float | None = None,
        *,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[Lease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        **wrong: Unpack[NothingElse],
    ) -> RWLock:
        """A read/write lock with this name: many may `read()` at the same time, or one may `write()`. Does no I/O.

        The settings are those of `lock()`. A lock and a read/write lock of the same name have nothing to do with each
        other.
        """
        if wrong:
            raise unknown_option(Client.rwlock, wrong)
        read, write = self._settings_of_rwlock(
            name, ttl, renew=renew, max_hold=max_hold, label=label, on_lost=on_lost, group=group, wait=wait
        )
        from gripfast.api.permits import RWLock

        return RWLock(self, read, write)

    @overload
    def locked(
        self,
        name: str,
        *,
        busy: Literal["raise"] | Callable[[LockTimeout], NoReturn] = "raise",
        **settings: Unpack[LockKwargs[Any]],
    ) -> Callable[[F], F]: ...

    @overload
    def locked(self, name: str, *, busy: Literal["skip"], **settings: Unpack[LockKwargs[Any]]) -> LockedOr[None]: ...

    @overload
    def locked(  # type: ignore[overload-overlap] # the first that fits counts: what can be awaited is awaited
        self, name: str, *, busy: Callable[[LockTimeout], Awaitable[T]], **settings: Unpack[LockKwargs[Any]]
    ) -> AsyncLockedOr[T]: ...

    @overload
    def locked(
        self, name: str, *, busy: Callable[[LockTimeout], T], **settings: Unpack[LockKwargs[Any]]
    ) -> LockedOr[T]: ...

    def locked(
        self,
        name: str,
        *,
        busy: Literal["raise", "skip"] | Callable[[LockTimeout], Any] = "raise",
        **settings: Unpack[LockKwargs[Any]],
    ) -> Callable[[Any], Any]:
        """A decorator: hold the lock while the function runs. A placeholder in the name, such as `{user_id}`, is
        replaced by the function's argument of that name. `settings` are those of `lock()`: ttl, renew, max_hold,
        reentrant, label, on_lost, group, wait.

        The `group` is the name as it is written here, with its placeholders, unless you pass another.

        If the lock is not free within `wait` seconds, the function does not run, and `busy` says what the call does:

        - `"raise"`: it raises LockTimeout.
        - `"skip"`: it returns None.
        - a function: it calls this function with the LockTimeout, and returns the result.

        Inside the function, `gripfast.current_lease()` returns the lease.

        Coroutine functions work, too: they use an AsyncClient of the same store, one for each event loop. For them,
        `busy` may be a coroutine function.
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if inspect.iscoroutinefunction(function):
                return locked_async(self._twin_lock, name, busy, settings)(function)
            return locked_plain(self.lock, name, busy, settings)(function)

        check_busy(busy)
        self.lock(name, **settings)  # what is wrong with them is told here, not at the first call
        return LockedBy(decorate)

    @overload
    def inspect(self, name: str, kind: Literal["lock"] = "lock") -> LockInfo | None: ...

    @overload
    def inspect(self, name: str, kind: Literal["semaphore", "rwlock"]) -> PermitInfo | None: ...

    def inspect(self, name: str, kind: Literal["lock", "semaphore", "rwlock"] = "lock") -> LockInfo | PermitInfo | None:
        """Who holds the lock, or None. Of a semaphore or read/write lock: who holds permits, or None."""
        if kind != "lock":
            found = reached(drive(self._permits(kind).inspect_permits(self._key(name), kind)))
            return found and self._shown_permits(found)
        info = reached(drive(self._store().inspect(self._key(name))))
        return info and self._shown(info)

    @overload
    def list(self, prefix: str = "", kind: Literal["lock"] = "lock") -> Iterator[LockInfo]: ...

    @overload
    def list(self, prefix: str = "", *, kind: Literal["semaphore", "rwlock"]) -> Iterator[PermitInfo]: ...

    def list(
        self, prefix: str = "", kind: Literal["lock", "semaphore", "rwlock"] = "lock"
    ) -> Iterator[LockInfo] | Iterator[PermitInfo]:
        """Iterate over the held locks, ordered by name; they are read page by page. On Redis and Redlock the order is
        arbitrary, and a lock may occur twice. With `kind`: over the semaphores or read/write locks that somebody
        holds."""
        if kind != "lock":
            return list_permits(self, kind, prefix)
        return self._list_locks(prefix)

    def _list_locks(self, prefix: str) -> Iterator[LockInfo]:
        prefix, after = self._config.prefix + rules.checked_prefix(prefix), None
        while True:
            page = reached(drive(self._store().page(prefix, after)))
            yield from map(self._shown, page.infos)
            if (after := page.after) is None:
                return

    def force_release(
        self,
        name: str,
        reason: str | None = None,
        *,
        kind: Literal["lock", "semaphore", "rwlock"] = "lock",
        owner: str | None = None,
        slot: int | None = None,
    ) -> bool:
        """For operators: release the lock, whoever holds it. True if someone held it. The next holder's token is still
        larger than all earlier ones.

        `reason` says why, in at most 1024 UTF-8 bytes. The old holder's `LeaseLost` shows it, and has it as `note`, if
        the store can pass it on (`capabilities.tells_reason`).

        With `kind`, release the permits of a semaphore or read/write lock: those of the holder with this `owner` id, or
        with this `slot`, or else those of all holders.
        """
        key, note = self._key(name), rules.checked_reason(reason)
        if kind != "lock" or owner is not None or slot is not None:
            return was_forced(name, note, reached(drive(self._forced_permits(key, kind, owner, slot, note))))
        return was_forced(name, note, reached(drive(forced(self._store(), key, note))))

    def close(self) -> None:
        """Release everything that is still held, and stop the background threads. Takes about 2 s at most, even if the
        store does not answer. A closed client can't be used again.

        It also closes the AsyncClients that `locked` made for coroutine functions.
        """
        self._is_closed = True
        ends = boottime() + EXIT_PATIENCE
        self._twins.close_soon()
        if self._runtime is not None:
            self._runtime.stop()
        self._twins.await_end(ends)

    def _store(self) -> Store:
        return self._current().env.store

    def _start(self) -> BlockingRuntime:
        runtime = self._runtime
        if runtime is None or not runtime.is_running or runtime.pid != this.pid or self._is_closed:
            runtime = self._current()
            runtime.start()
        return runtime

    def _current(self) -> BlockingRuntime:
        runtime = self._runtime
        if runtime is None or runtime.pid != this.pid:
            self._tell_if_apart(is_forked=runtime is not None)
            runtime = self._making.run(self._make)
        if self._is_closed:
            raise ClientClosed
        return runtime

    def _make(self) -> BlockingRuntime:
        if self._runtime is None or self._runtime.pid != this.pid:
            patience = self._config.patience
            store = self._config.factory.blocking(patience.request_timeout)
            self._runtime = BlockingRuntime(store, patience, self, self._observers())
        return self._runtime

    def _twin_lock(self, name: str, **settings: Any) -> AsyncLock:
        return self._twins.here().lock(name, **settings)

    def _held_here(self) -> HeldHere:
        if self._here.pid != this.pid:
            self._here.__init__()  # type: ignore[misc]
        task = task_here()
        if task is None:
            return self._here.held
        held = self._here.of_tasks.setdefault(task, HeldHere())
        held.update(self._here.held)  # what the thread has acquired before it runs the loop is held in its tasks
        return held

    def _vouch(self, lease: Lease, pid: int) -> None:
        """The lease counts as alive while this process lives, too (where the store looks at processes)."""
        state = lease._state
        reached(drive(self._store().vouch(Hold(state.key, state.owner, state.ttl, share=state.want.share), pid)))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Here(threading.local):
    """What this thread of this process holds. If an event loop runs in it, each of its tasks has its own."""

    def __init__(self) -> None:
        self.pid = this.pid
        self.held: HeldHere = weakref.WeakValueDictionary()
        self.of_tasks: weakref.WeakKeyDictionary[object, HeldHere] = weakref.WeakKeyDictionary()


def _is_started_by_multiprocessing() -> bool:
    """If so, it is loaded."""
    multiprocessing = sys.modules.get("multiprocessing.process")
    return multiprocessing is not None and multiprocessing.parent_process() is not None


def reached(answer: T | Unreachable) -> T:
    if isinstance(answer, Unreachable):
        raise to_raise(answer.error)
    return answer


def forced(store: Store, key: str, note: str | None) -> Coroutine[Any, Any, bool | Unreachable]:
    """A note goes only to stores that can pass it on: others need not know of it."""
    if note is None or not store.capabilities.tells_reason:
        return store.force_release(key)
    return store.force_release(key, note)


def was_forced(name: str, note: str | None, was_held: bool) -> bool:
    """Logs it."""
    if was_held:
        because = "" if note is None else f" ({quoted(note)})"
        what = "released %r by force%s; its holder may still be at work"
        _log.warning(what, name, because, extra={"gripfast_name": name})
    else:
        _log.info("%r was already free; nothing to release by force", name, extra={"gripfast_name": name})
    return was_held


def _async_client(config: Config) -> AsyncClient:
    from gripfast.api.aio.client import AsyncClient

    return AsyncClient(config)
