"""`adopt()` for the tasks of one event loop: what it returns is awaited, or entered, as that of `acquire()`."""

from __future__ import annotations

import weakref
from asyncio import current_task
from typing import TYPE_CHECKING

from gripfast.api.aio.lease import AsyncLease
from gripfast.api.aio.lock import Acquiring, AsyncLock, _AcquiringOne
from gripfast.core.handover import adopt

if TYPE_CHECKING:
    from gripfast.api.aio.client import AsyncClient
    from gripfast.api.settings import LockSettings
    from gripfast.core.ledger import Entry


class Detached(AsyncLock):
    """A lock that is adopted from its former owner. There is nobody to wait for."""

    def __init__(self, client: AsyncClient, settings: LockSettings, former: str) -> None:
        super().__init__(client, settings)
        self._former = former

    async def _acquire(self, patience: float | None, entry: Entry = False) -> AsyncLease:
        client, settings = self._client, self._settings
        runtime = client._start()
        state = await adopt(runtime.env, settings.want, self._former)
        if (task := current_task(runtime.loop)) is not None:
            state.acquirer = weakref.ref(task)
        return AsyncLease(client, runtime, state, settings.on_lost)


class _Adopting(_AcquiringOne):
    __slots__ = ()
    _call = "adopt()"
    _instead = "write `async with client.adopt(text) as lease:`, or `lease = await client.adopt(text)`"

    def _used_twice(self) -> RuntimeError:
        return RuntimeError(f"{self._described()} was used before: a text can be adopted once. Keep the lease")


class Adopting(Acquiring):
    """From `adopt()`: await it, or use `async with`."""

    __slots__ = ()
    _when_awaited = _Adopting
    _call = _Adopting._call
    _instead = _Adopting._instead


_Adopting._when_awaited = _Adopting
