"""How a program with an event loop begins: `connect_async()`, or no client at all with `gripfast.async_lock()`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gripfast.api.aio.client import AsyncClient
from gripfast.api.aio.lock import AsyncLock
from gripfast.api.config import configure
from gripfast.api.default import default_client
from gripfast.api.misuse import more_than_a_name

if TYPE_CHECKING:
    from typing import Never, Unpack

    from gripfast.api.aio.lease import AsyncLease
    from gripfast.api.typed import LockKwargs


def connect_async(target: object = None, **options: Any) -> AsyncClient:
    """Return a client for the tasks of one event loop. Takes the same arguments as connect(). It does no I/O, so there
    is nothing to await."""
    return AsyncClient(configure(target, options))


def async_lock(name: str, *more: Never, **settings: Unpack[LockKwargs[AsyncLease]]) -> AsyncLock:
    """A lock of this event loop's default client: `async with gripfast.async_lock("nightly"): …`.

    `settings` are keywords, those of `AsyncClient.lock`: ttl, renew, max_hold, reentrant, label, on_lost, group, wait,
    min_hold, lazy_release. `help(gripfast.Client.lock)` says what they mean.
    """
    if more:
        raise more_than_a_name("async_lock", more)
    return default_client()._twin_lock(name, **settings)
