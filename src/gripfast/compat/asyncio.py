"""`asyncio.Lock` over a Gripfast lock, also for `asyncio.Condition`.

It behaves like asyncio's lock. Five things are new:

- If the engine can't be reached, acquire() raises StoreUnavailable.
- You do not await release(). It ends the lease in this process at once, and releases the lock in the background.
  `async with` waits until the lock is released.
- If the lease was lost, release() raises LeaseLost. Leaving `async with` raises it too, unless the body raised
  something itself. The body is not cancelled, because a Condition may release and re-acquire the lock inside one body.
  To be notified of a loss, use `on_lost`, or use `client.lock()` instead of this class.
- The lock belongs to the event loop of its client. In another loop acquire(), release() and `async with` raise
  ConfigurationError and change nothing.
- locked() can't send a request without await. It says whether this object holds the lock, according to the local clock.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from gripfast.api.aio.client import AsyncClient
from gripfast.api.aio.lease import AsyncLease
from gripfast.compat.holdings import Hold, Holdings

__all__ = ["Lock"]


class Lock:
    """Like asyncio.Lock: not re-entrant, and any task may release it. If one object has several leases (because one was
    lost), release() releases the latest lease of the calling task. If this task has none, it releases the oldest.

    `settings` are those of `client.lock` except `reentrant` and `wait`: ttl, renew, max_hold, label, on_lost,
    group, min_hold, lazy_release.
    """

    def __init__(self, client: AsyncClient, name: str, **settings: Any) -> None:
        self._client = client
        self._lock = client.lock(name, reentrant=False, wait=None, **settings)
        self._holdings: Holdings[AsyncLease] = Holdings()

    async def acquire(self) -> Literal[True]:
        """Wait until this object has the lock; returns True."""
        lease = await self._lock.acquire()
        self._holdings[Hold(asyncio.current_task(), lease)] = None
        return True

    def release(self) -> None:
        """Release the lock; do not await it. Raises RuntimeError if nothing is held, and LeaseLost if the lease was
        lost."""
        self._take()._release_soon()

    def locked(self) -> bool:
        """Whether this object holds the lock at this moment. It does not see other holders."""
        return any(lease.held for _, lease in self._holdings.living())

    def _take(self) -> AsyncLease:
        self._client._check_loop()
        lease = self._holdings.take(asyncio.current_task())
        if lease is None:
            raise RuntimeError("Lock is not acquired.")
        return lease

    def __repr__(self) -> str:
        state = "locked" if self.locked() else "unlocked"
        return f"<{type(self).__module__}.Lock {self._lock.name!r} on {self._client.where} [{state}]>"

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *exc: Any) -> None:
        self._client._check_loop()
        lease = self._holdings.take(asyncio.current_task())
        if lease is not None:
            await lease.__aexit__(*exc)
        elif exc[0] is None:
            raise RuntimeError("Lock is not acquired.")
