"""Runs the page until the process is told to end: then streams end, requests are finished, and it returns."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn

from gripfast.api.client import Client
from gripfast.api.rows import scan
from gripfast.serve.app import Settings, application
from gripfast.serve.feed import Feed

LAST_REQUESTS = 3
"""Seconds for what is still being answered at the end."""
CONNECTIONS_MOST = 500
HEADERS_MOST = 32 * 1024
"""Bytes of a request's head."""


class Page:
    """One page, served at a socket. `on_open` is called when requests are answered."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        interval: float,
        prefix: str = "",
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.feed = Feed(lambda: scan(client, prefix), interval)
        self._server = _Server(_config(application(settings, client, self.feed)), on_open)

    async def run(self, bound: socket.socket) -> None:
        """Until `end()` is called."""
        self.feed.open()
        try:
            await self._server.serve([bound])
        finally:
            self.feed.close()

    async def run_until_signal(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            with contextlib.suppress(NotImplementedError):  # Windows: there Ctrl-C interrupts
                loop.add_signal_handler(number, self.end)
        await self.run(bound)

    def end(self) -> None:
        """Called again, it does not wait for anything."""
        self._server.force_exit = self._server.should_exit
        self._server.should_exit = True
        self.feed.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_open: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_open = on_open

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_open()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: uvicorn would send itself each one once more when all is done."""
        yield


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http="h11",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MOST,
        h11_max_incomplete_event_size=HEADERS_MOST,
        timeout_graceful_shutdown=LAST_REQUESTS,
    )
