"""Gripfast: one thing at a time, across processes and machines.

import gripfast

with gripfast.lock("nightly") as lease:
    ...                      # nobody else is in here; lease.token fences what you write
"""

from __future__ import annotations

import os
from _thread import RLock
from typing import TYPE_CHECKING

from gripfast.errors import (
    ClientClosed,
    ConfigurationError,
    GripfastError,
    LeaseLost,
    LockTimeout,
    OutcomeUnknown,
    StaleToken,
    StoreUnavailable,
)

if TYPE_CHECKING:
    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.aio.entry import async_lock, connect_async
    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.aio.lock import AsyncLock
    from gripfast.api.client import Client
    from gripfast.api.entry import connect, lock
    from gripfast.api.lease import Lease
    from gripfast.api.lock import Lock
    from gripfast.api.observing import LoggingObserver
    from gripfast.api.within import InTransaction
    from gripfast.core.events import Event, Observer
    from gripfast.core.ports import Capabilities, LockInfo

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "Capabilities",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "Event",
    "GripfastError",
    "InTransaction",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockInfo",
    "LockTimeout",
    "LoggingObserver",
    "Observer",
    "OutcomeUnknown",
    "StaleToken",
    "StoreUnavailable",
    "__version__",
    "async_lock",
    "connect",
    "connect_async",
    "lock",
]

_LATER = {
    "AsyncClient": "api.aio.client",
    "AsyncLease": "api.aio.lease",
    "AsyncLock": "api.aio.lock",
    "Capabilities": "core.ports",
    "Client": "api.client",
    "Event": "core.events",
    "InTransaction": "api.within",
    "Lease": "api.lease",
    "Lock": "api.lock",
    "LockInfo": "core.ports",
    "LoggingObserver": "api.observing",
    "Observer": "core.events",
    "async_lock": "api.aio.entry",
    "connect": "api.entry",
    "connect_async": "api.aio.entry",
    "lock": "api.entry",
}
"""What is loaded when it is first used, and from where. Most programs have threads or an event loop, not both."""


def __getattr__(name: str) -> object:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    with _loading:
        found = globals()[name] = getattr(import_module(f"gripfast.{_LATER[name]}"), name)
    return found


_loading = RLock()
"""No process is forked while a thread loads a module: the child would wait for that thread, which it does not have."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_loading.acquire, after_in_parent=_loading.release, after_in_child=_loading.release)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
