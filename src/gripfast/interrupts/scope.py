"""`with lock`: where the lease of the block lives.

A `with` statement looks up `__exit__` before it calls `__enter__`, keeps what it found for as long as the block lasts,
and drops it however the block ends. So here the look-up makes a Scope, the call that follows puts the lease into it,
and nobody else holds that lease: it lives exactly as long as the block. If an interrupt strikes after the grant but
before the block, or between the block and its exit, the Scope is dropped with the frame, and the lease is released. A
stack of leases kept by the client could not know that.

A caller that calls the two methods by hand, or through the class as `contextlib.ExitStack` does, has no such place.
There the Scope is an entry in a book of the lock, kept alive by the thread or task that entered: if that ends without
leaving, the entry ends with it, and the lease is released. The lock itself knows entries weakly. What `__exit__`
releases is, in this order,

1. what was entered with this very `__exit__`, bound before the entry as a `with` statement does it; once;
2. the last entry by hand of the thread or task that calls it;
3. the last entry by hand of anyone: a stack may be closed on another thread or task than it was filled on, as with the
   locks of the standard library.

Whoever takes an entry out of its book, one step of a dict, has it; there is no mutex that an interrupt could leave
locked.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gripfast.interrupts.living import Living

if TYPE_CHECKING:
    import asyncio


class Scope:
    """One `with` block of one lock, from its look-up on; or one entry by hand."""

    __slots__ = ("__weakref__", "is_kept", "lease", "lock", "number")

    def __init__(self, lock: Any) -> None:
        self.lock = lock
        self.lease: Any = None
        self.is_kept = False
        """A `with` statement keeps it."""
        self.number: int
        """The order in which locks were entered by hand."""

    def keep(self, lease: Any) -> None:
        self.lease = lease
        if not self.is_kept:
            by_hand(self.lock).enter(self)

    def take(self) -> Any | None:
        """The lease that it was entered with; only once, because the same bound `__exit__` may be used again."""
        lease, self.lease = self.lease, None
        return lease

    def leave(self) -> Any:
        """The lease to release."""
        lease, self.lease = self.lease, None  # as take(), whose call would cost
        return by_hand(self.lock).leave().take() if lease is None else lease


class _Entries(dict[Scope, None]):
    """What one thread or task has entered by hand and not left, oldest first."""

    __slots__ = ("__weakref__",)
    __hash__ = object.__hash__  # type: ignore[assignment]
    __eq__ = object.__eq__

    def end(self, _task: object = None) -> None:
        self.clear()


class ByHand:
    """The book of one lock."""

    def __init__(self) -> None:
        self._all: Living[_Entries] = Living()

    def enter(self, scope: Scope) -> None:
        entries = self._mine()
        if entries is None:
            entries = _Entries()
            self._all.add(entries)
            self._keep(entries)
        scope.number = next(_numbers)
        entries[scope] = None

    def leave(self) -> Scope:
        mine = self._mine()
        ours = [(each is mine, scope.number, scope, each) for each in self._all for scope in list(each)]
        for _, _, scope, entries in sorted(ours, key=lambda entry: entry[:2], reverse=True):
            if entries.pop(scope, scope) is None:
                return scope
        raise RuntimeError(
            "this lock is not entered: either __exit__ was already called, or the thread or task that called __enter__ "
            "has ended, and the lock was released then"
        )

    def _mine(self) -> _Entries | None:
        """Those of the thread or task that calls."""
        raise NotImplementedError

    def _keep(self, entries: _Entries) -> None:
        """For as long as the thread or task lives, and no longer."""
        raise NotImplementedError


class ByThreads(ByHand):
    def __init__(self) -> None:
        super().__init__()
        self._here = threading.local()

    def _mine(self) -> _Entries | None:
        return getattr(self._here, "entries", None)

    def _keep(self, entries: _Entries) -> None:
        self._here.entries = entries


class ByTasks(ByHand):
    """On one loop. A task keeps its entries by what it calls when it is done; the entries know the task, by the body of
    their lease, so a book that kept them would keep the task, and the task's end would never be noticed."""

    def __init__(self) -> None:
        super().__init__()
        self._by_task: weakref.WeakKeyDictionary[asyncio.Task[Any], weakref.ref[_Entries]] = weakref.WeakKeyDictionary()

    def _mine(self) -> _Entries | None:
        known = self._by_task.get(_this_task())
        return None if known is None else known()

    def _keep(self, entries: _Entries) -> None:
        task = _this_task()
        self._by_task[task] = weakref.ref(entries)
        task.add_done_callback(entries.end)


def by_hand(lock: Any) -> ByHand:
    """The book of a lock: made for the few who need one, and once. One step of a dict decides whose counts."""
    known: ByHand | None = lock.__dict__.get("_book")
    return lock.__dict__.setdefault("_book", lock._new_book()) if known is None else known


def _this_task() -> asyncio.Task[Any]:
    import asyncio  # who is in a task has loaded it

    task = asyncio.current_task()
    assert task is not None
    return task


_numbers = itertools.count()


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
