"""`asyncio.Lock` over a Gripfast lock, also for `asyncio.Condition`.

What asyncio's lock does, this does. Five things asyncio does not know:

- The engine can't be reached: acquire() raises StoreUnavailable, as the API does.
- release() is not awaited: the lease is over at once on this side, and given back in the background. `async with`
  waits until it is.
- The lease was lost: release() raises LeaseLost; leaving `async with` raises it too, unless the body raised something
  itself. The body is not cancelled (a Condition changes leases within one body): use `on_lost`, or the API's own lock.
- It belongs to the event loop of its client: in another one acquire(), release() and `async with` raise
  ConfigurationError and change nothing.
- locked() can't ask the engine without await: it tells whether this object holds the lock, by the clock.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, Literal

from gripfast.api.client import AsyncClient
from gripfast.api.lease import AsyncLease
from gripfast.compat.holdings import Hold, Holdings

__all__ = ["Lock"]


class Lock:
    """In the shape of asyncio.Lock: not re-entrant, and any task may release it (see `holdings` for which lease).

    `settings` are those of `client.lock` except `reentrant`: ttl, renew, max_hold, label, on_lost.
    """

    def __init__(self, client: AsyncClient, name: str, **settings: Any) -> None:
        self._client = client
        self._lock = client.lock(name, reentrant=False, **settings)
        self._holdings: Holdings[AsyncLease] = Holdings()

    async def acquire(self) -> Literal[True]:
        """True, once this object has the lock."""
        lease = await self._lock.acquire()
        self._holdings[Hold(asyncio.current_task(), lease)] = None
        return True

    def release(self) -> None:
        """Give it back, not awaited. RuntimeError if there is nothing to release, LeaseLost if it was lost before."""
        self._take()._release_soon()

    def locked(self) -> bool:
        """Whether this object holds the lock at this moment; others may hold the name without its knowing."""
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client._check_loop()
        lease = self._holdings.take(asyncio.current_task())
        if lease is not None:
            await lease.__aexit__(kind, error, trace)
        elif kind is None:
            raise RuntimeError("Lock is not acquired.")
