"""Semaphores and read/write locks, for threads, and what those for tasks (`api/aio/permits.py`) have in common with
them.

*The same thread or task.* A read/write lock knows what its caller has. `read()` inside `read()` or `write()`, and
`write()` inside `write()`, make another handle on the lease that is there: in a queue that is first come first served,
a second request could wait for a writer that waits for the first. `write()` inside `read()` is refused at once,
because two readers who do that would wait for each other.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NoReturn

from gripfast.api.lease import Handle, Lease
from gripfast.api.lock import AnyLock, Lock, still_held
from gripfast.api.misuse import NEEDS_PLAIN_WITH, NotLikeOthers, exact, refuse_to_pickle, unknown_option
from gripfast.api.settings import LOCKS_WAIT, LockSettings
from gripfast.api.words import OF_HALVES, OF_RWLOCKS, OF_SEMAPHORES, OF_WRITE_LEASES
from gripfast.core import rules
from gripfast.core.acquire import acquire
from gripfast.core.lease import RW_LIMIT, LeaseState, Want
from gripfast.core.ledger import Entry
from gripfast.core.permits import downgrade
from gripfast.core.ports import Capabilities, Kind, Share, Store, Taken, Unreachable, permits_of, to_raise
from gripfast.errors import ConfigurationError
from gripfast.interrupts.scope import ByThreads, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.runtime.here import me

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.base import AnyClient
    from gripfast.api.client import Client, HeldHere
    from gripfast.api.typed import NothingElse

_WHERE = "the embedded store, one Redis server, ZooKeeper, etcd, or PostgreSQL or MySQL with mode=lease"


def check_kind(kind: Kind, capabilities: Capabilities, where: str) -> Kind:
    if kind not in ("semaphore", "rwlock"):
        several = ": make one call for each kind" if str(kind) in ("all", "any", "None") else ""
        raise ConfigurationError(f"kind must be 'lock', 'semaphore' or 'rwlock', not {kind!r}{several}")
    if not (capabilities.semaphores if kind == "semaphore" else capabilities.rwlocks):
        what, more = ("semaphores", "") if kind == "semaphore" else ("read/write locks", " or mode=row")
        raise ConfigurationError(f"{where} can't keep {what}: connect to a store that can, such as {_WHERE}{more}")
    return kind


def check_whom(kind: str, owner: object, slot: object) -> None:
    """Of a force release."""
    if kind == "lock" and (owner is not None or slot is not None):
        raise ConfigurationError("a lock has one holder: leave out owner and slot, or write kind='semaphore'")
    if owner is not None and slot is not None:
        raise ConfigurationError("write owner=… or slot=…, not both: each of them names one holder")
    if slot is not None and (kind == "rwlock" or not isinstance(slot, int) or isinstance(slot, bool)):
        raise ConfigurationError(f"slot must be the number of a semaphore's permit, not {slot!r}")
    if not isinstance(owner, str | None):
        raise ConfigurationError(f"owner must be an owner id, as inspect() shows it, not {owner!r}")


def resized(store: Store, key: str, limit: int) -> Any:
    return permits_of(store).resize(key, limit)


class AnySemaphore(AnyLock, lacks=OF_SEMAPHORES):
    _method = "semaphore({}, limit)"

    @property
    def limit(self) -> int:
        """How many permits there are, as far as this object knows."""
        return self._share.limit

    @property
    def _share(self) -> Share:
        share = self._settings.want.share
        assert share is not None
        return share

    def _want(self, n: int) -> Want:
        want = self._settings.want
        share = self._share
        n = rules.checked_n(n, share.limit)
        return want if n == share.n else want._replace(share=share._replace(n=n))

    def _is_resized(self, limit: int) -> None:
        self._settings.want = self._settings.want._replace(share=self._share._replace(limit=limit))

    def _described(self) -> str:
        return f"the semaphore {self.name!r}"


class Semaphore(AnySemaphore):
    """`with semaphore as lease`, `semaphore.acquire(n, wait=…)` or `semaphore.try_acquire(n)`."""

    _how_to_make = "gripfast.connect(url).semaphore(name, limit)"
    _new_book = ByThreads
    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = NEEDS_PLAIN_WITH

    _client: Client

    @exact
    def acquire(
        self, n: int = 1, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]
    ) -> SemaphoreLease:
        """Wait for n permits. They are acquired together, and released together. If they are not free within `wait`
        seconds, raise LockTimeout. With None, wait for ever. Without `wait`, the setting of the semaphore counts.

        Keep the result, and call its `release()`; or write `with semaphore:`.
        """
        if more or wrong:
            raise unknown_option(Semaphore.acquire, wrong, wait, *more)
        caller = sys._getframe(1)
        return self._obtain(self._want(n), self._settings.patience(wait), (caller.f_code, caller.f_lasti))

    @exact
    def try_acquire(self, n: int = 1, *more: Never, **wrong: Unpack[NothingElse]) -> SemaphoreLease | None:
        """Return the lease, or None if n permits are not free, or if others wait for theirs. Does not wait."""
        if more or wrong:
            raise unknown_option(Semaphore.try_acquire, wrong, *more)
        caller = sys._getframe(1)
        answer = self._acquire(self._want(n), 0.0, (caller.f_code, caller.f_lasti))
        return None if isinstance(answer, Taken) else answer

    def resize(self, limit: int) -> None:
        """Change the limit for everybody, in one step. If it grows, waiters are served at once. If it shrinks, holders
        keep what they have, and nobody gets a permit until fewer permits than the new limit are in use. Waiters that
        want more permits than the new limit get a ConfigurationError, and so does every later request with the old
        limit."""
        limit = rules.checked_limit(limit)
        answer = drive(resized(self._client._store(), self._settings.want.key, limit))
        if isinstance(answer, Unreachable):
            raise to_raise(answer.error)
        self._is_resized(limit)

    def _obtain(self, want: Want, patience: float | None, entry: Entry = False) -> SemaphoreLease:
        started = boottime()
        answer = self._acquire(want, patience, entry)
        if isinstance(answer, Taken):
            raise self._settings.timed_out(boottime() - started, answer)
        return answer

    def _acquire(self, want: Want, patience: float | None, entry: Entry = False) -> SemaphoreLease | Taken:
        runtime = self._client._start()
        answer = drive(acquire(runtime.env, want, patience, entry))
        if isinstance(answer, Taken):
            return answer
        answer.acquirer = me.thread
        return SemaphoreLease(self._client, runtime, answer, self._settings.on_lost)

    def __enter__(self) -> SemaphoreLease:
        scope = scope_of_this_entry(self)
        lease = self._obtain(self._settings.want, self._settings.wait, scope.is_kept)
        lease._is_entered = True
        scope.keep(lease)
        return lease

    @Exit
    def __exit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.leave().__exit__(*exc)


class SemaphoreLease(Lease):
    """Permits of a semaphore. A context manager: leaving the block releases them."""

    __slots__ = ()

    @property
    def slots(self) -> tuple[int, ...]:
        """The numbers of the permits, from 0 on: no other holder has one of them at the same time. With `token` as the
        fencing token, each of them can guard a resource of its own."""
        return self._state.slots

    if TYPE_CHECKING:

        def detach(  # type: ignore[misc] # only a lock can be handed over: a type checker refuses every call
            self: Never, ttl: float | None = None
        ) -> NoReturn: ...

        def __enter__(self) -> SemaphoreLease: ...


class AnyRWLock(NotLikeOthers, lacks=OF_RWLOCKS):
    _method = "rwlock({})"
    __reduce_ex__ = refuse_to_pickle

    def __init__(self, client: AnyClient, read: LockSettings, write: LockSettings) -> None:
        self._client = client
        self._read = read
        self._write = write

    @property
    def name(self) -> str:
        return self._read.want.name

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._client.where}>"


class RWLock(AnyRWLock):
    """Many may read at the same time, or one may write: `with rwlock.read()`, `with rwlock.write() as lease`.

    First come first served: a reader that comes after a waiting writer waits, so that writers get their turn.
    """

    _client: Client

    @exact
    def read(self, **wrong: Unpack[NothingElse]) -> ReadLock:
        """A lock that other readers may hold at the same time, but no writer. Does no I/O."""
        if wrong:
            raise unknown_option(RWLock.read, wrong)
        return ReadLock(self._client, self._read)

    @exact
    def write(self, **wrong: Unpack[NothingElse]) -> WriteLock:
        """A lock that keeps out all others, readers and writers. Does no I/O."""
        if wrong:
            raise unknown_option(RWLock.write, wrong)
        return WriteLock(self._client, self._write)


def held_as(name: str) -> str:
    """What HeldHere calls it: no lock has such a name."""
    return f"\0rwlock {name}"


def held_already(held: HeldHere, want: Want, who: str) -> LeaseState | None:
    """The lease that this thread or task has. Raises if it reads, and now wants to write."""
    state = still_held(held, held_as(want.name))
    if state is not None and want.share is not None and want.share.n == RW_LIMIT and not is_writer(state):
        raise ConfigurationError(
            f"this {who} reads {want.name!r}, and a reader can't become a writer: release the read lease first, or "
            "write() from the beginning, and downgrade() when only reading is left to do"
        )
    return state


def is_writer(state: LeaseState) -> bool:
    return state.want.share is not None and state.want.share.n == RW_LIMIT


class _Half(Lock, lacks=OF_HALVES):
    """Of a read/write lock."""

    _how_to_make = "gripfast.connect(url).rwlock(name).read() or .write()"
    _lease: type[Lease] = Lease
    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = NEEDS_PLAIN_WITH

    def within(self, *_: object, **__: object) -> NoReturn:
        """Only locks can be taken in the caller's own transaction."""
        raise ConfigurationError("within() is for locks: a read/write lock has its own connection. Write `with` alone")

    def _acquire(self, patience: float | None, entry: Entry = False) -> Lease | Taken:
        client, settings = self._client, self._settings
        runtime = client._start()
        held = client._held_here(inherits=False)
        state = held_already(held, settings.want, "thread")
        if state is None:
            answer = drive(acquire(runtime.env, settings.want, patience, entry))
            if isinstance(answer, Taken):
                return answer
            state = answer
            state.acquirer = me.thread
            held[held_as(self.name)] = state
        return self._lease(client, runtime, state, settings.on_lost)


class ReadLock(_Half):
    """`with rwlock.read() as lease`: used like a lock."""

    def _described(self) -> str:
        return f"the read lock {self.name!r}"


class WriteLock(_Half):
    """`with rwlock.write() as lease`: used like a lock."""

    def _described(self) -> str:
        return f"the write lock {self.name!r}"

    if TYPE_CHECKING:

        def acquire(
            self, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]
        ) -> WriteLease: ...

        def try_acquire(self, *more: Never, **wrong: Unpack[NothingElse]) -> WriteLease | None: ...

        def __enter__(self) -> WriteLease: ...


class WriteLease(Lease, lacks=OF_WRITE_LEASES):
    """The lease of a writer. A context manager: leaving the block releases it."""

    __slots__ = ()

    def downgrade(self) -> None:
        """From now on it is the lease of a reader, with the same token: other readers come in, and no writer does in
        between. A second call does nothing. There is no way back.

        If the store can't be reached, the downgrade is repeated in the background. Raises LeaseLost if the lease was
        lost, and ConfigurationError while this thread has another handle on it (`read()` or `write()` inside)."""
        check_downgrade(self, self._client.capabilities)
        drive(downgrade(self._runtime.env, self._state))

    if TYPE_CHECKING:

        def detach(  # type: ignore[misc] # only a lock can be handed over: a type checker refuses every call
            self: Never, ttl: float | None = None
        ) -> NoReturn: ...

        def __enter__(self) -> WriteLease: ...


WriteLock._lease = WriteLease


def check_downgrade(lease: Handle[Any], capabilities: Capabilities) -> None:
    lease.ensure_held()
    if not capabilities.downgrades:
        raise ConfigurationError(
            f"{lease._client.where} can't downgrade a lease: release it and read() again (a writer may come in between)"
        )
    others = [each for ref in lease._state.handles if (each := ref()) is not None and each is not lease]
    if any(not each._is_released for each in others):
        raise ConfigurationError(
            f"{lease.name!r} is held by another handle of this thread or task, which may still write: release that "
            "one first"
        )
