"""The client for threads. `api/base.py` has what the one for tasks (`api/aio/client.py`) has in common with it.

A client owns its store, its watchdog and the leases made through it.

Forks: every action compares the pid. In a forked child a client makes a store and a watchdog of its own, and the leases
that the child inherited are not held.
"""

from __future__ import annotations

import inspect
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeVar, overload

from gripfast.api import keeping
from gripfast.api.base import reached
from gripfast.api.config import Config
from gripfast.api.decorator import LockedBy, check_decoration, locked_async, locked_plain
from gripfast.api.lease import Lease
from gripfast.api.lock import Lock
from gripfast.api.loops import ClientPerLoop
from gripfast.api.misuse import NEEDS_PLAIN_WITH, exact, needs, unknown_option
from gripfast.api.operators import Operators
from gripfast.api.permit_decorators import PermitDecorators
from gripfast.core import rules
from gripfast.core.lease import LeaseState
from gripfast.core.ports import Hold, Store
from gripfast.errors import ClientClosed, LockTimeout, Reason
from gripfast.machine import boottime, this
from gripfast.runtime.blocking import BlockingRuntime, drive
from gripfast.runtime.here import me, task_here
from gripfast.runtime.parts import EXIT_PATIENCE

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from typing import Never, Unpack

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.aio.election import AsyncElection
    from gripfast.api.aio.lock import AsyncLock
    from gripfast.api.aio.once import AsyncOnce
    from gripfast.api.election import Election
    from gripfast.api.locks import Leases, Locks
    from gripfast.api.once import Once
    from gripfast.api.permits import RWLock, Semaphore, SemaphoreLease
    from gripfast.api.typed import AsyncLockedOr, LockedOr, LockKwargs, NothingElse

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

HeldHere = weakref.WeakValueDictionary[str, LeaseState]
"""The leases of one thread or task, by name, for re-entry."""


class Client(PermitDecorators, Operators):
    """Locks for threads. Thread-safe. A context manager: leaving the block closes the client."""

    _drive = staticmethod(drive)
    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = NEEDS_PLAIN_WITH

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
        *more: Never,
        renew: bool = True,
        max_hold: float | None = None,
        reentrant: bool = False,
        label: str | None = None,
        on_lost: Callable[[Lease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        min_hold: float | None = None,
        lazy_release: bool = False,
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
        - `min_hold`: the name stays taken for this many seconds from its acquisition, however early it is released,
          even if the work fails or the client is closed. If the holder dies, the name is free when the ttl is over.
          Needs a store with `capabilities.keeps`.
        - `lazy_release`: if true, `release()` and the end of `with lock` return when the request has left, and do not
          wait for the store's answer. On a network this saves half the time of an acquisition and a release. For
          everybody but this client, the lock may still be taken for a moment. If the lease turns out to have been lost
          at the store before, that is a WARNING of the logger `gripfast.lease`, not a LeaseLost. Needs a store with
          `capabilities.lazy_release`.
        """
        if more or wrong:
            raise unknown_option(Client.lock, wrong, ttl, *more)
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
        lazy_release: bool = False,
        **wrong: Unpack[NothingElse],
    ) -> Locks:
        """Several locks, to be acquired together or not at all: `with client.locks("a", "b") as leases`. Does no I/O.

        Everybody acquires them in the same order, so two programs that need the same locks never wait for each other.
        `wait` is the time for all of them. `max_hold` counts from the moment at which all of them are held. `on_lost`
        is called once, when the first of them is lost. The other settings are those of `lock()`. The leases are always
        renewed, because the first one has to last until the last one is granted.

        Acquire all that you need with one `locks()`. The acquisition raises ConfigurationError if this thread already
        holds one of them, through this client, and LeaseLost if one is lost during the wait for the others.
        """
        if wrong:
            raise unknown_option(Client.locks, wrong)
        settings = self._settings_of_several(
            names, ttl, label=label, on_lost=on_lost, group=group, wait=wait, lazy_release=lazy_release
        )
        from gripfast.api.locks import Locks  # most programs need one lock at a time

        return Locks(self, settings, rules.checked_max_hold(max_hold))

    @exact
    def election(
        self,
        name: str,
        value: str = "",
        ttl: float | None = None,
        *,
        max_hold: float | None = None,
        on_lost: Callable[[Lease, Reason], object] | None = None,
        group: str | None = None,
        **wrong: Unpack[NothingElse],
    ) -> Election:
        """An election with this name: one leader at a time. Does no I/O.

        - `value`: what others read as `leader.value` while this candidate leads, such as its address. At most 4096
          UTF-8 bytes.
        - `max_hold`: the longest time that a term may last, in seconds.

        `ttl`, `on_lost` and `group` are those of `lock()`. An election is the lock of its name, and `value` is the
        label of that lock. So `lock(name)` and `election(name)` exclude each other.
        """
        if wrong:
            raise unknown_option(Client.election, wrong)
        from gripfast.api.election import Election, settings_of  # most programs need no leader

        return Election(self, self._settings(name, ttl, **settings_of(value, on_lost, max_hold, group)))

    def elected(
        self,
        name: str,
        value: str = "",
        ttl: float | None = None,
        *,
        max_hold: float | None = None,
        on_lost: Callable[[Any, Reason], object] | None = None,
        group: str | None = None,
    ) -> Callable[[F], F]:
        """A decorator: a call of the function campaigns, and runs the function while this candidate leads, as
        `Election.run` does. After a lost term it runs again.

        A placeholder in the name, such as `{shard}`, is replaced by the function's argument of that name. The settings
        are those of `election()`. The `group` is the name as it is written here, with its placeholders, unless you pass
        another. Inside the function, `gripfast.current_lease()` returns the term. Coroutine functions work, too, as
        with `locked`.
        """
        from gripfast.api.election import elected_plain

        more: dict[str, Any] = {"value": value, "ttl": ttl, "max_hold": max_hold, "on_lost": on_lost}
        self.election(name, **more, group=group)  # what is wrong with them is told here, not at the first call
        more["group"] = name if group is None else group

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if not inspect.iscoroutinefunction(function):
                return elected_plain(self.election, name, more)(function)
            from gripfast.api.aio.election import elected_async

            return elected_async(self._twin_election, name, more)(function)

        return decorate  # type: ignore[return-value]

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
        on_lost: Callable[[SemaphoreLease, Reason], object] | None = None,
        group: str | None = None,
        wait: float | None = None,
        **wrong: Unpack[NothingElse],
    ) -> Semaphore:
        """A semaphore with this name. It has `limit` permits, and each holder has one or more of them. Does no I/O.

        All programs must use the same limit: a program with another limit gets a ConfigurationError that names both.
        `resize()` changes the limit. The other settings are those of `lock()`. A lock and a semaphore of the same name
        have nothing to do with each other.
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
    ) -> Once:
        """Something that is to be done once, by the first caller: `with client.once("digest:2026-11-15", keep=7*86400)
        as run:` and inside it `if run:`. Does no I/O.

        The run is true for the caller that is to do the work. When its block ends normally, the store records for
        `keep` seconds that the work is done. A caller that comes later finds `run.done`; a caller that comes while the
        work is going on finds `run.busy`.

        - `keep`: for how many seconds the store remembers that it was done, up to ten years. By the store's clock.
        - `wait`: how many seconds to wait while somebody else does the work. The wait ends when the work is done. If
          the work has failed, this caller is to do it. None: for ever. Unlike locks, `once()` does not wait by default.
        - `done_on_error`: if the block raises an Exception, that counts as done, too. Otherwise an exception releases
          the name, and somebody else may begin. An interrupt never counts as done.
        - `ttl`, `label` and `group` are those of `lock()`. The lease is renewed while the block runs: `run.lease`.

        It can't make work happen exactly once. A process that dies in the middle has done part of it, and another
        begins from the start. If the lease is lost, or the store does not confirm that it recorded the work as done,
        the end of the block raises LeaseLost or OutcomeUnknown, and the work may be done again.

        It is a decorator, too: `@client.once("digest:{day}", keep=7*86400)`. The name is a template, as in `locked()`.
        If the function is not to run, the call returns None. Coroutine functions work.

        The name is that of a lock: `client.lock(name)` waits for it. After `forget(name)` it may be done again. Needs a
        store with `capabilities.once`.
        """
        if wrong:
            raise unknown_option(Client.once, wrong)
        from gripfast.api.once import Once  # most programs need locks

        settings = keeping.settings_of_once(self, name, ttl, label=label, group=group, wait=wait)
        return Once(self, settings, keep, rules.checked_flag("done_on_error", done_on_error))

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
        reentrant, label, on_lost, group, wait, min_hold, lazy_release.

        The `group` is the name as it is written here, with its placeholders, unless you pass another.

        If the lock is not free within `wait` seconds, the function does not run, and `busy` says what the call does:

        - `"raise"`: it raises LockTimeout.
        - `"skip"`: it returns None.
        - a function: it calls this function with the LockTimeout, and returns the result.

        The last two need a `wait`, such as 0: without it a call waits until the lock is free.

        Inside the function, `gripfast.current_lease()` returns the lease.

        Coroutine functions work, too: they use an AsyncClient of the same store, one for each event loop. For them,
        `busy` may be a coroutine function.
        """

        def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
            if inspect.iscoroutinefunction(function):
                return locked_async(self._twin_lock, name, busy, settings)(function)
            return locked_plain(self.lock, name, busy, settings)(function)

        check_decoration(busy, settings)
        self.lock(name, **settings)  # what is wrong with them is told here, not at the first call
        return LockedBy(decorate)

    def adopt(
        self,
        text: str,
        *,
        ttl: float | None = None,
        renew: bool = True,
        max_hold: float | None = None,
        label: str | None = None,
        on_lost: Callable[[Lease, Reason], object] | None = None,
        group: str | None = None,
    ) -> Lease:
        """Take over a lock that `lease.detach()`, or `gripfast acquire`, has detached on the same store. The lease has
        a new owner id and a larger token. Only one client can adopt it: a second one, or one that comes after the lock
        has expired, gets LeaseLost.

        `ttl` and `label` are those of the detached lease, unless you pass others. What was left of a
        `min_hold` at the detach counts from the adoption on. The other settings are those of `lock()`.
        """
        from gripfast.api.handover import settings_of_adopted
        from gripfast.core.handover import adopt

        settings, former = settings_of_adopted(
            self, text, ttl, label, renew=renew, max_hold=max_hold, on_lost=on_lost, group=group
        )
        runtime = self._start()
        state = drive(adopt(runtime.env, settings.want, former))
        state.acquirer = me.thread
        return Lease(self, runtime, state, settings.on_lost)

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

    def _twin_once(self, name: str, **settings: Any) -> AsyncOnce:
        return self._twins.here().once(name, **settings)

    def _twin_lock(self, name: str, **settings: Any) -> AsyncLock:
        return self._twins.here().lock(name, **settings)

    def _twin_election(self, name: str, **settings: Any) -> AsyncElection:
        return self._twins.here().election(name, **settings)

    def _held_here(self, inherits: bool = True) -> HeldHere:
        """`inherits`: a task also has what its thread acquired before it ran the loop."""
        if self._here.pid != this.pid:
            self._here.__init__()  # type: ignore[misc]
        task = task_here()
        if task is None:
            return self._here.held
        held = self._here.of_tasks.setdefault(task, HeldHere())
        if inherits:
            held.update(self._here.held)
        return held

    def _vouch(self, lease: Lease, pid: int) -> None:
        """The lease counts as alive while this process lives, too (where the store looks at processes)."""
        state = lease._state
        reached(drive(self._store().vouch(Hold(state.key, state.owner, state.ttl, share=state.want.share), pid)))

    def __enter__(self) -> Client:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Here(threading.local):
    """What this thread of this process holds. If an event loop runs in it, each of its tasks has its own."""

    def __init__(self) -> None:
        self.pid = this.pid
        self.held: HeldHere = weakref.WeakValueDictionary()
        self.of_tasks: weakref.WeakKeyDictionary[object, HeldHere] = weakref.WeakKeyDictionary()


def _async_client(config: Config) -> AsyncClient:
    from gripfast.api.aio.client import AsyncClient

    return AsyncClient(config)
