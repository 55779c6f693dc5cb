"""`with lock`: where the lease of the block lives.

A `with` statement looks up `__exit__` before it calls `__enter__`, keeps what it found for as long as the block lasts,
and drops it however the block ends. So here the look-up makes a Scope, the call that follows puts the lease into it,
and nobody else holds that lease: it lives exactly as long as the block. If an interrupt strikes after the grant but
before the block, or between the block and its exit, the Scope is dropped with the frame, and the lease is given back.
A stack of leases kept by the client could not know that.

Whoever calls the two methods by hand, or through the class as `contextlib.ExitStack` does, has no such place. There
the Scope is put on a stack of the lock, per thread or task, and `__exit__` takes the last one off.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any


class Scope:
    """One `with` block of one lock, from its look-up on."""

    __slots__ = ("__weakref__", "is_kept", "lease", "lock")

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.lease: Any = None
        self.is_kept = False
        """A `with` statement keeps it."""

    def keep(self, lease: Any) -> None:
        self.lease = lease
        if not self.is_kept:
            self.lock._entered().append(self)

    def leave(self) -> Any:
        """The lease to release."""
        if self.lease is not None:
            return self.lease
        try:
            return self.lock._entered().pop().lease
        except IndexError:
            raise RuntimeError("this lock was not entered here") from None


class _Latest(threading.local):
    """The scope that this thread looked up last; weak, because only a `with` statement keeps what it looked up."""

    scope: Callable[[], Scope | None] = staticmethod(lambda: None)


_latest = _Latest()


def scope_of_this_entry(lock: Any) -> Scope:
    """To be called first thing in `__enter__`: the scope of its `with` statement, if it is in one."""
    scope = _latest.scope()
    if scope is None or scope.lock is not lock or scope.is_kept:
        return Scope(lock)
    scope.is_kept = True
    return scope


class Exit:
    """The descriptor behind `__exit__` and `__aexit__`: `method(scope, *exc)` does the work."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __get__(self, lock: Any, owner: type | None = None) -> Callable[..., Any]:
        if lock is None:
            return lambda lock, *exc: self._method(Scope(lock), *exc)
        scope = Scope(lock)
        _latest.scope = weakref.ref(scope)
        return self._method.__get__(scope)  # type: ignore[no-any-return]
