"""`with lock`: where the lease of the block lives.

A `with` statement looks up `__enter__` and `__exit__`, keeps the latter for as long as the block lasts, and drops it
however the block ends. So here the two look-ups of one statement share a Scope, and the lease is held by that Scope
alone: it lives exactly as long as the block. If an interrupt strikes after the grant but before the block, or between
the block and its exit, the Scope is dropped with the frame, and the lease is given back. A stack of leases kept by
the client could not know that.

Whoever calls the two methods by hand, or through the class as `contextlib.ExitStack` does, has no such place. There
the Scope is put on a stack of the lock, per thread or task, and `__exit__` takes the last one off.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any


class Scope:
    """One `with` block of one lock, from its first look-up on."""

    __slots__ = ("__weakref__", "is_paired", "lease", "lock")

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.lease: Any = None
        self.is_paired = False
        """Both look-ups of a `with` statement have been seen: the interpreter keeps this scope."""

    def begin(self) -> None:
        """The call follows its look-up: from here on no other look-up belongs to it."""
        if _half.scope() is self:
            _half.side = ""

    def keep(self, lease: Any) -> None:
        self.lease = lease
        if not self.is_paired:
            self.lock._entered().append(self)

    def leave(self) -> Any:
        """The lease to release."""
        self.begin()
        if self.lease is not None:
            return self.lease
        try:
            return self.lock._entered().pop().lease
        except IndexError:
            raise RuntimeError("this lock was not entered here") from None


class _Half(threading.local):
    """The scope whose other look-up must come next in this thread, if it belongs to a `with` statement."""

    scope: Callable[[], Scope | None] = staticmethod(lambda: None)
    side: str = ""


_half = _Half()


class Side:
    """A descriptor: one of the two look-ups. `method(scope, ...)` does the work."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, lock: Any, owner: type | None = None) -> Callable[..., Any]:
        if lock is None:
            return lambda lock, *args: self._method(Scope(lock), *args)
        scope = _half.scope()
        if scope is not None and scope.lock is lock and _half.side not in ("", self._name):
            scope.is_paired = True
            _half.side = ""
        else:
            scope = Scope(lock)
            _half.scope, _half.side = weakref.ref(scope), self._name
        return self._method.__get__(scope)  # type: ignore[no-any-return]
