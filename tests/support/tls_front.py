"""TLS in front of a server that knows none: what clients send and get is that server's own, in TLS.

with TlsFront(server.port, certificate(folder)) as front:
    client = gripfast.connect(f"valkeys://127.0.0.1:{front.port}/0?ssl_ca_certs={folder}/server.crt")
"""

import asyncio
import contextlib
import ssl
import threading
from pathlib import Path
from types import TracebackType

from support.ports import HOST


class TlsFront:
    """It has a thread and an event loop of its own."""

    def __init__(self, target: int, certificate: Path) -> None:
        self._target = target
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._context.load_cert_chain(certificate, certificate.with_suffix(".key"))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listening = asyncio.start_server(self._serve, HOST, 0, ssl=self._context)
        self._server = asyncio.run_coroutine_threadsafe(listening, self._loop).result(10)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def _serve(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection(HOST, self._target)
        try:
            await asyncio.gather(_pass(client_in, server_out), _pass(server_in, client_out))
        finally:
            client_out.close()
            server_out.close()

    async def _end(self) -> None:
        self._server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> "TlsFront":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    """Until either side ends."""
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.close()
