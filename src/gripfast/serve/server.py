"""Runs the page until the process is told to end: then streams end, requests are finished, and it returns."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from gripfast.api.client import Client
from gripfast.api.rows import scan
from gripfast.serve.app import Settings, application
from gripfast.serve.feed import Feed

LAST_REQUESTS = 3
"""Seconds for what is still being answered at the end."""
CONNECTIONS_MOST = 500
HEADERS_MOST = 32 * 1024
"""Bytes of a request's head."""
HEAD_WITHIN = 10.0
"""Seconds for a request's head to arrive."""
STUCK_MOST = 30.0
"""Seconds for which a visitor may take nothing of what it is sent."""


class Page:
    """One page, served at a socket. `on_open` is called when requests are answered."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        interval: float,
        on_open: Callable[[], None] = lambda: None,
    ) -> None:
        self.feed = Feed(lambda: scan(client, settings.prefix), interval)
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


class _Impatient(H11Protocol):
    """Whoever connects and says nothing, or takes nothing of what it is sent, is in the way of others: there are only
    CONNECTIONS_MOST. uvicorn itself looks at the time between two requests."""

    _heads_end: asyncio.TimerHandle | None = None
    _looks_again: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._heads_end, self._looks_again):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        is_answered = cycle is None or cycle.response_complete
        if is_answered and self._heads_end is None:
            self._heads_end = self.loop.call_later(HEAD_WITHIN, self.transport.close)
        elif not is_answered and self._heads_end is not None:
            self._heads_end.cancel()
            self._heads_end = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._look_later()

    def resume_writing(self) -> None:
        if self._looks_again is not None:
            self._looks_again.cancel()
        super().resume_writing()

    def _look_later(self) -> None:
        unread = self.transport.get_write_buffer_size()
        self._looks_again = self.loop.call_later(STUCK_MOST, self._look, unread)

    def _look(self, before: int) -> None:
        if self.transport.get_write_buffer_size() >= before:
            self.transport.abort()
        else:  # slow, but it reads
            self._look_later()


def _config(app: object) -> uvicorn.Config:
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=_Impatient,
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
