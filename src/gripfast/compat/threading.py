"""`threading.Lock` and `threading.RLock` over a Gripfast lock: for `threading.Condition`, cachetools, any `lock=`.

They behave like threading's locks, with the same arguments, return values and errors. Four things are new:

- If the engine can't be reached, acquire() raises StoreUnavailable. It never returns False for that.
- If the lease was lost, release() raises LeaseLost, and so do Condition's wait() and notify(). Leaving a `with` block
  raises it too, unless the body raised something itself.
- locked() sends a request to the engine. It is true if anyone holds the name, in this process or in another.
- A Condition notifies threads of this process only. wait() releases the lock for everyone, but notify() does not reach
  other processes.

After acquire(), or `__enter__` called by hand or by an ExitStack, the lock object keeps the lease until release().
If the lock object is garbage-collected before release(), the lock is released. In a `with` block the block keeps the
lease, so that even a KeyboardInterrupt at any point releases the lock.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import Any

from gripfast.api.client import Client
from gripfast.api.lease import Lease
from gripfast.compat.holdings import Hold, Holdings
from gripfast.errors import LockTimeout
from gripfast.interrupts.scope import Exit, Scope, scope_of_this_entry

__all__ = ["Lock", "RLock"]


class Lock:
    """Like threading.Lock: not re-entrant, and any thread may release it. If one object has several leases (because one
    was lost), release() releases the latest lease of the calling thread. If this thread has none, it releases the
    oldest.

    `settings` are those of `client.lock` except `reentrant` and `wait`: ttl, renew, max_hold, label, on_lost,
    group, min_hold, lazy_release.
    """

    _is_reentrant = False
    _not_held = "release unlocked lock"

    def __init__(self, client: Client, name: str, **settings: Any) -> None:
        self._client = client
        self._lock = client.lock(name, reentrant=self._is_reentrant, wait=None, **settings)
        self._shared: Holdings[Lease] = Holdings()

    @property
    def _holdings(self) -> Holdings[Lease]:
        return self._shared

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Return True as soon as this thread has the lock. If someone else holds it, return False: at once with
        `blocking=False`, otherwise after `timeout` seconds (-1: wait for ever)."""
        patience = _patience(blocking, timeout)
        try:
            lease = self._lock.acquire(patience)
        except LockTimeout:
            return False
        holdings, hold = self._holdings, Hold(threading.get_ident(), lease)
        holdings[hold] = None  # last, and no call: see `holdings`
        return True

    def release(self) -> None:
        """Release the lock. Raises RuntimeError if nothing is held, and LeaseLost if the lease was lost."""
        lease = self._holdings.take(threading.get_ident())
        if lease is None:
            raise RuntimeError(self._not_held)
        lease.release()

    def locked(self) -> bool:
        """Whether anyone holds the name, here or elsewhere. Costs one request to the engine."""
        return self._client.inspect(self._lock.name) is not None

    def _is_owned(self) -> bool:
        """For Condition, which would otherwise find out by acquiring. LeaseLost if it was owned and is lost."""
        entry = self._holdings.pick(threading.get_ident())
        if entry is None:
            return False
        entry[1].ensure_held()
        return True

    def _leave(self, scope: Scope, *exc: Any) -> None:
        """Release what the block was entered with, or what a Condition has acquired in its place since."""
        lease = scope.take()
        if lease is None or not self._holdings.take_this(lease):
            lease = self._holdings.take(threading.get_ident())
        if lease is not None:
            lease.__exit__(*exc)
        elif exc[0] is None:
            raise RuntimeError(self._not_held)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.{type(self).__name__} {self._lock.name!r} on {self._client.where}>"

    def __enter__(self) -> bool:
        scope = scope_of_this_entry(self)
        lease = scope.lease = self._lock.acquire()
        if scope.is_kept:
            lease._enter_block()
        holdings, hold = self._holdings, Hold(threading.get_ident(), lease, keep=not scope.is_kept)
        holdings[hold] = None  # last, and no call: see `holdings`
        return True

    @Exit
    def __exit__(scope: Scope, *exc: Any) -> None:
        scope.lock._leave(scope, *exc)


class RLock(Lock):
    """Like threading.RLock: the thread that holds the lock may acquire it again, and only that thread may release it.

    If a thread ends without releasing the lock, the lock is released.
    """

    _is_reentrant = True
    _not_held = "cannot release un-acquired lock"

    def __init__(self, client: Client, name: str, **settings: Any) -> None:
        super().__init__(client, name, **settings)
        self._mine = _Mine()

    @property
    def _holdings(self) -> Holdings[Lease]:
        return self._mine.holdings

    def _release_save(self) -> int:
        """For Condition: give up all levels, say how many they were. All are given up even if one was lost."""
        levels = 0
        with ExitStack() as releases:
            while (lease := self._holdings.take(threading.get_ident())) is not None:
                releases.callback(lease.release)
                levels += 1
        if not levels:
            raise RuntimeError(self._not_held)
        return levels

    def _acquire_restore(self, levels: int) -> None:
        for _ in range(levels):
            self.acquire()


class _Mine(threading.local):
    """What this thread holds. It goes when the thread goes, and its leases with it."""

    def __init__(self) -> None:
        self.holdings: Holdings[Lease] = Holdings()


def _patience(blocking: bool, timeout: float) -> float | None:
    """threading's two arguments as the seconds to wait; its errors for what they can't be."""
    if not blocking:
        if timeout != -1:
            raise ValueError("can't specify a timeout for a non-blocking call")
        return 0.0
    if timeout == -1:
        return None
    if not timeout >= 0:  # NaN included
        raise ValueError("timeout value must be a non-negative number")
    if timeout > threading.TIMEOUT_MAX:
        raise OverflowError("timeout value is too large")
    return timeout
