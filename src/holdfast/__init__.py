"""Holdfast: one thing at a time, across processes and machines.

import holdfast

with holdfast.lock("nightly") as lease:
    ...                      # nobody else is in here; lease.token fences what you write
"""

from __future__ import annotations

from holdfast.api.client import AsyncClient, Client
from holdfast.api.entry import async_lock, connect, connect_async, lock
from holdfast.api.lease import AsyncLease, Lease
from holdfast.api.lock import AsyncLock, Lock
from holdfast.api.within import InTransaction
from holdfast.core.ports import Capabilities, LockInfo
from holdfast.errors import (
    ConfigurationError,
    HoldfastError,
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
    "ConfigurationError",
    "HoldfastError",
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
