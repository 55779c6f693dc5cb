"""One AsyncClient per event loop, for what is not bound to a loop itself: plain clients, and with them the default.

Threads with a loop each come here at the same time; there is no mutex, each step is one of a dict. Nobody else makes
the client of a loop than whoever runs in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gripfast.errors import ClientClosed
from gripfast.interrupts.living import Living
from gripfast.machine import boottime

if TYPE_CHECKING:
    import asyncio

    from gripfast.api.aio.client import AsyncClient


class ClientPerLoop:
    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._clients: dict[asyncio.AbstractEventLoop, AsyncClient] = {}
        self._all: Living[AsyncClient] = Living()
        """Those of closed loops too, while somebody has one of their leases."""
        self._is_closed = False

    def here(self) -> AsyncClient:
        """That of the running loop."""
        from gripfast.runtime.aio import loop_here  # plain clients have one of these, too, and mostly no loop

        loop = loop_here()
        client = self._clients.get(loop)
        if client is None:
            self._let_go_of_closed_loops()
            client = self._make()
            self._all.add(client)
            self._clients[loop] = client
        if self._is_closed:  # looked at when it is in the book: whoever closes has seen it there, or is seen here
            self._clients.pop(loop, None)
            raise ClientClosed
        return client

    def close_soon(self) -> None:
        """From any thread: all of them, whatever their loops do."""
        self._is_closed = True
        for client in self._all:
            client._close_soon()

    def await_end(self, ends: float) -> None:
        """Until that moment at most."""
        for client in self._all:
            client._await_end(max(0.0, ends - boottime()))
        self._clients.clear()

    def _let_go_of_closed_loops(self) -> None:
        """Their clients keep them, so they would never go."""
        for loop in list(self._clients):
            if loop.is_closed():
                self._clients.pop(loop, None)
