"""Gripfast: one thing at a time, across processes and machines.

import gripfast

with gripfast.lock("nightly") as lease:
    ...                      # nobody else is in here; lease.token fences what you write

PYTEST_DONT_REWRITE (a program may import this before it starts pytest, which would complain)
"""

from __future__ import annotations

import os
import sys
from _thread import RLock as _RLock  # not a lock of ours: `gripfast.RLock` must not be there
from typing import TYPE_CHECKING

from gripfast.errors import (
    ClientClosed,
    ConfigurationError,
    GripfastError,
    LeaseLost,
    LockTimeout,
    OutcomeUnknown,
    Reason,
    StaleToken,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from types import FrameType

    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.aio.election import AsyncElection
    from gripfast.api.aio.entry import async_lock, connect_async
    from gripfast.api.aio.lease import AsyncLease, AsyncLost
    from gripfast.api.aio.lock import Acquiring, AcquiringAll, AsyncLock
    from gripfast.api.aio.locks import AsyncLeases, AsyncLocks
    from gripfast.api.aio.once import AsyncOnce, AsyncRun
    from gripfast.api.aio.permits import (
        AcquiringPermits,
        AsyncReadLock,
        AsyncRWLock,
        AsyncSemaphore,
        AsyncSemaphoreLease,
        AsyncWriteLease,
        AsyncWriteLock,
    )
    from gripfast.api.client import Client
    from gripfast.api.current import current_lease
    from gripfast.api.default import configure
    from gripfast.api.election import Election
    from gripfast.api.entry import connect, lock
    from gripfast.api.lease import Lease, Lost
    from gripfast.api.lock import Lock
    from gripfast.api.locks import Leases, Locks
    from gripfast.api.observing import LoggingObserver
    from gripfast.api.once import Once, Run
    from gripfast.api.permits import ReadLock, RWLock, Semaphore, SemaphoreLease, WriteLease, WriteLock
    from gripfast.api.typed import AsyncLockedOr, LockedOr, LockKwargs, PermitKwargs
    from gripfast.api.within import InTransaction
    from gripfast.core.election import Leader
    from gripfast.core.events import Event, EventKind, EventRequest, Observer
    from gripfast.core.ports import Capabilities, LockInfo, PermitHolder, PermitInfo

__version__ = "0.1.0"

__all__ = [
    "Acquiring",
    "AcquiringAll",
    "AcquiringPermits",
    "AsyncClient",
    "AsyncElection",
    "AsyncLease",
    "AsyncLeases",
    "AsyncLock",
    "AsyncLockedOr",
    "AsyncLocks",
    "AsyncLost",
    "AsyncOnce",
    "AsyncRWLock",
    "AsyncReadLock",
    "AsyncRun",
    "AsyncSemaphore",
    "AsyncSemaphoreLease",
    "AsyncWriteLease",
    "AsyncWriteLock",
    "Capabilities",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "Election",
    "Event",
    "EventKind",
    "EventRequest",
    "GripfastError",
    "InTransaction",
    "Leader",
    "Lease",
    "LeaseLost",
    "Leases",
    "Lock",
    "LockInfo",
    "LockKwargs",
    "LockTimeout",
    "LockedOr",
    "Locks",
    "LoggingObserver",
    "Lost",
    "Observer",
    "Once",
    "OutcomeUnknown",
    "PermitHolder",
    "PermitInfo",
    "PermitKwargs",
    "RWLock",
    "ReadLock",
    "Reason",
    "Run",
    "Semaphore",
    "SemaphoreLease",
    "StaleToken",
    "StoreUnavailable",
    "WriteLease",
    "WriteLock",
    "__version__",
    "async_lock",
    "configure",
    "connect",
    "connect_async",
    "current_lease",
    "lock",
]

_LATER = {
    "Acquiring": "api.aio.lock",
    "AcquiringAll": "api.aio.lock",
    "AcquiringPermits": "api.aio.permits",
    "AsyncClient": "api.aio.client",
    "AsyncElection": "api.aio.election",
    "AsyncLease": "api.aio.lease",
    "AsyncLeases": "api.aio.locks",
    "AsyncLock": "api.aio.lock",
    "AsyncLockedOr": "api.typed",
    "AsyncLocks": "api.aio.locks",
    "AsyncLost": "api.aio.lease",
    "AsyncRWLock": "api.aio.permits",
    "AsyncReadLock": "api.aio.permits",
    "AsyncSemaphore": "api.aio.permits",
    "AsyncSemaphoreLease": "api.aio.permits",
    "AsyncWriteLease": "api.aio.permits",
    "AsyncWriteLock": "api.aio.permits",
    "AsyncOnce": "api.aio.once",
    "AsyncRun": "api.aio.once",
    "Capabilities": "core.ports",
    "Client": "api.client",
    "Election": "api.election",
    "Event": "core.events",
    "EventKind": "core.events",
    "EventRequest": "core.events",
    "InTransaction": "api.within",
    "Leader": "core.election",
    "Lease": "api.lease",
    "Leases": "api.locks",
    "Lock": "api.lock",
    "LockInfo": "core.ports",
    "LoggingObserver": "api.observing",
    "Observer": "core.events",
    "Once": "api.once",
    "LockKwargs": "api.typed",
    "LockedOr": "api.typed",
    "Locks": "api.locks",
    "Lost": "api.lease",
    "PermitHolder": "core.ports",
    "PermitInfo": "core.ports",
    "PermitKwargs": "api.typed",
    "RWLock": "api.permits",
    "ReadLock": "api.permits",
    "Semaphore": "api.permits",
    "SemaphoreLease": "api.permits",
    "WriteLease": "api.permits",
    "WriteLock": "api.permits",
    "Run": "api.once",
    "async_lock": "api.aio.entry",
    "configure": "api.default",
    "connect": "api.entry",
    "connect_async": "api.aio.entry",
    "current_lease": "api.current",
    "lock": "api.entry",
}
"""What is loaded when it is first used, and from where. Most programs have threads or an event loop, not both."""


if not TYPE_CHECKING:  # a type checker would take every name that is not there for one of these

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            what = f"module {__name__!r} has no attribute {name!r}"
            hint = _meant(name)
            # `from gripfast import name` would replace the message of an AttributeError by one without the hint.
            raise (ImportError if hint and _imports(sys._getframe(1)) else AttributeError)(what + hint)
        from importlib import import_module

        with _loading:
            found = globals()[name] = getattr(import_module(f"gripfast.{_LATER[name]}"), name)
        return found


def _meant(name: str) -> str:
    """For those who know another library's names. Only for an error: it loads a module."""
    if name.startswith("_"):
        return ""
    with _loading:
        from gripfast.api.words import NAMES
    return f": {NAMES[name]}" if name in NAMES else ""


def _imports(frame: FrameType) -> bool:
    """Whether `from … import` asks; only for an error."""
    import dis

    return dis.opname[frame.f_code.co_code[frame.f_lasti]] == "IMPORT_FROM"


_loading = _RLock()
"""No process is forked while a thread loads a module: the child would wait for that thread, which it does not have."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
