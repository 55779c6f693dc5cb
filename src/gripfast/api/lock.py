"""A lock: a name plus settings, nothing more. Threads and tasks may share one; who holds is a matter of leases."""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any

from gripfast.api.lease import Lease
from gripfast.api.misuse import (
    HOW_TO_ACQUIRE,
    LOCK_NEEDS_PLAIN_WITH,
    NotLikeOthers,
    exact,
    made_by_hand,
    no_truth,
    refuse_to_pickle,
    unknown_option,
)
from gripfast.api.settings import LOCKS_WAIT, LockSettings, checked_wait
from gripfast.api.words import OF_LOCKS
from gripfast.core.acquire import acquire
from gripfast.core.lease import LeaseState
from gripfast.core.ledger import Entry
from gripfast.core.ports import Taken
from gripfast.interrupts.scope import ByThreads, Exit, Scope, scope_of_this_entry
from gripfast.machine import boottime
from gripfast.runtime.blocking import drive
from gripfast.runtime.here import me

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.base import AnyClient
    from gripfast.api.client import Client
    from gripfast.api.typed import NothingElse
    from gripfast.api.within import InTransaction


class Settled(NotLikeOthers):
    """What a client makes from a name and settings: a lock, a semaphore, an election."""

    _how_to_make: str
    __reduce_ex__ = refuse_to_pickle

    def __init__(
        self,
        client: AnyClient = None,  # type: ignore[assignment]
        settings: LockSettings = None,  # type: ignore[assignment]
        **wrong: Unpack[NothingElse],
    ) -> None:
        if settings.__class__ is not LockSettings or wrong:
            raise made_by_hand(type(self), self._how_to_make)
        self._client = client
        self._settings = settings

    @property
    def name(self) -> str:
        return self._settings.want.name

    @property
    def ttl(self) -> float:
        """The requested ttl in seconds. `Lease.ttl` is the ttl that the store granted."""
        return self._settings.want.ttl

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} on {self._client.where}>"


class AnyLock(Settled, lacks=OF_LOCKS):
    _how_to_make = "gripfast.lock(name), or gripfast.connect(url).lock(name)"
    if not TYPE_CHECKING:  # which has words of its own
        __bool__ = no_truth(HOW_TO_ACQUIRE)

    def _described(self) -> str:
        return f"the lock {self.name!r}"


class Lock(AnyLock):
    """`with lock as lease`, `lock.acquire(wait=…)` or `lock.try_acquire()`.

    In a `contextlib.ExitStack` the lease lasts until the stack is closed (any thread may close it), or until the thread
    that entered the lock ends.
    """

    _new_book = ByThreads
    if not TYPE_CHECKING:  # which has words of its own
        __aenter__ = LOCK_NEEDS_PLAIN_WITH

    _client: Client

    @exact
    def acquire(self, wait: float | None = LOCKS_WAIT, *more: Never, **wrong: Unpack[NothingElse]) -> Lease:
        """Wait for the lock. If it is not free within `wait` seconds, raise LockTimeout; its `holder` says who holds
        the lock. With None, wait for ever. Without `wait`, the setting of the lock counts.

        Keep the result, and call its `release()`; or write `with lock:`. If you keep no reference to a lease, it is
        released at once, and the logger `gripfast.lease` gets a WARNING.
        """
        if more or wrong:
            raise unknown_option(Lock.acquire, wrong, wait, *more)
        wait = self._settings.wait if wait is LOCKS_WAIT else checked_wait(wait)  # `patience`, without a call
        caller = sys._getframe(1)
        entry = caller.f_code, caller.f_lasti
        if wait is None:
            return self._acquire(None, entry)  # type: ignore[return-value] # who waits for ever is never told otherwise
        return self._obtain(wait, entry)

    @exact
    def try_acquire(self, *more: Never, **wrong: Unpack[NothingElse]) -> Lease | None:
        """Return the lease, or None if someone else holds the lock. Does not wait for the holder."""
        if more or wrong:
            raise unknown_option(Lock.try_acquire, wrong, *more)
        caller = sys._getframe(1)
        answer = self._acquire(0.0, (caller.f_code, caller.f_lasti))
        return None if isinstance(answer, Taken) else answer

    def within(self, connection: object, wait: float | None = LOCKS_WAIT, *, durable: bool = False) -> InTransaction:
        """Take the lock in the open transaction of your own database connection; commit or rollback releases it.

        Call it before you read anything in that transaction. The client must be connected with `?mode=row` or, on
        PostgreSQL only, `?mode=advisory`. A rollback to a savepoint may release the lock, too, while the transaction
        goes on. With `durable=True` the call raises ConfigurationError if a rollback to a savepoint could release the
        lock. `wait` is that of `acquire()`.
        """
        from gripfast.api.within import within

        env = self._client._start().env
        patience = self._settings.patience(wait)
        return drive(within(env, self._settings.want, connection, patience, durable, is_async=False))

    def _obtain(self, patience: float, entry: Entry = False) -> Lease:
        started = boottime()
        answer = self._acquire(patience, entry)
        if isinstance(answer, Taken):
            raise self._settings.timed_out(boottime() - started, answer)
        return answer

    def _acquire(self, patience: float | None, entry: Entry = False) -> Lease | Taken:
        client, settings = self._client, self._settings
        runtime = client._start()
        held = client._held_here() if settings.reentrant else None
        state = None if held is None else still_held(held, self.name)
        if state is None:
            answer = drive(acquire(runtime.env, settings.want, patience, entry))
            if isinstance(answer, Taken):
                return answer
            state = answer
            state.acquirer = me.thread
            if held is not None:
                held[self.name] = state
        return Lease(client, runtime, state, settings.on_lost)

    def __enter__(self) -> Lease:
        scope = scope_of_this_entry(self)
        wait = self._settings.wait
        lease = self._acquire(None, scope.is_kept) if wait is None else self._obtain(wait, scope.is_kept)
        assert isinstance(lease, Lease)  # who waits for ever is never told that it is taken
        lease._is_entered = True
        scope.keep(lease)
        return lease

    @Exit
    def __exit__(scope: Scope, *exc: Any) -> None:  # pyright: ignore[reportGeneralTypeIssues]
        scope.leave().__exit__(*exc)


def still_held(held: weakref.WeakValueDictionary[str, LeaseState], name: str) -> LeaseState | None:
    """Re-entry is for a lease that is held now; a lost one does not let anyone in."""
    state = held.get(name)
    return state if state is not None and state.remaining(boottime()) > 0.0 else None
