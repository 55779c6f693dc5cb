"""One AsyncClient per event loop, for what is not bound to a loop itself: the default client, and plain clients."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gripfast.api.client import AsyncClient


class ClientPerLoop:
    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AsyncClient] = weakref.WeakKeyDictionary()

    def here(self) -> AsyncClient:
        """That of the running loop. Those of closed loops are let go: they keep their loop, so it would never go."""
        for closed in [loop for loop in list(self._clients) if loop.is_closed()]:
            del self._clients[closed]
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients[loop] = self._make()
        return client
