"""Gripfast: one thing at a time, across processes and machines.

import gripfast

with gripfast.lock("nightly") as lease:
    ...                      # nobody else is in here; lease.token fences what you write
"""

from __future__ import annotations

from gripfast.api.client import AsyncClient, Client
from gripfast.api.entry import async_lock, connect, connect_async, lock
from gripfast.api.lease import AsyncLease, Lease
from gripfast.api.lock import AsyncLock, Lock
from gripfast.api.within import InTransaction
from gripfast.core.ports import Capabilities, LockInfo
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

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "AsyncLease",
    "AsyncLock",
    "Capabilities",
    "Client",
    "ClientClosed",
    "ConfigurationError",
    "GripfastError",
    "InTransaction",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockInfo",
    "LockTimeout",
    "OutcomeUnknown",
    "StaleToken",
    "StoreUnavailable",
    "__version__",
    "async_lock",
    "connect",
    "connect_async",
    "lock",
]
