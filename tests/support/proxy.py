"""A TCP proxy on loopback that does to a connection what networks do: delay it, hold it up, cut it at a given byte.

    with Proxy(("127.0.0.1", server.port)) as proxy:
        client = gripfast.connect(f"redis://127.0.0.1:{proxy.port}/0")
        proxy.hold("replies")
        ...
        until(lambda: proxy.held("replies"))   # the server has answered, nobody has heard it
        proxy.cut()

"requests" are the bytes from clients to the server, "replies" those from the server to clients. The proxy has a thread
and an event loop of its own; an order is carried out when its call returns.
"""

import asyncio
import concurrent.futures
import contextlib
import errno
import socket
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, TypeVar

from support.ports import HOST, give_back_port, reserved_port

Direction = Literal["requests", "replies"]
T = TypeVar("T")

DIRECTIONS: tuple[Direction, Direction] = ("requests", "replies")
CHUNK = 65536
HELD_MOST = 1_000_000
"""Bytes that are held of one direction before nothing more is read: whoever sends more has to wait, as in a network."""
PAUSE = 0.01
"""Seconds between two tries to reach a target that does not listen yet."""


class _Way:
    """What holds for one direction of all connections."""

    def __init__(self) -> None:
        self.delay = 0.0
        self.open = asyncio.Event()
        self.open.set()
        self.bytes_left: int | None = None  # until the connection that carries the last of them is cut
        self.chunks_left: int | None = None  # until one is dropped, and its connection cut
        self.replaced: tuple[bytes, bytes] | None = None
        self.arrived = 0
        self.passed = 0
        self.waiting = 0

    def allowed(self, data: bytes) -> tuple[bytes, bool]:
        """As much of the data as may pass, and whether the connection ends behind it."""
        if self.chunks_left is not None:
            self.chunks_left -= 1
            if self.chunks_left == 0:
                self.chunks_left = None
                return b"", True
        if self.bytes_left is None or len(data) < self.bytes_left:
            if self.bytes_left is not None:
                self.bytes_left -= len(data)
            return data, False
        data, self.bytes_left = data[: self.bytes_left], None
        return data, True


class _Stream:
    """One direction of one connection: a reader that takes what comes, a writer that passes it on when it may."""

    def __init__(self, way: _Way, source: socket.socket, sink: socket.socket, cut: Callable[[], None]) -> None:
        self._way = way
        self._source = source
        self._sink = sink
        self._cut = cut
        self._chunks: deque[tuple[float, bytes]] = deque()
        self._news = asyncio.Event()

    async def read(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._way.waiting >= HELD_MOST and not self._way.open.is_set():
                await self._way.open.wait()
            try:
                data = await loop.sock_recv(self._source, CHUNK)
            except OSError:
                data = b""
            if self._way.replaced:
                data = data.replace(*self._way.replaced)
            self._way.arrived += len(data)
            self._way.waiting += len(data)
            self._chunks.append((loop.time() + self._way.delay, data))
            self._news.set()
            if not data:
                return

    async def write(self) -> None:
        while True:
            due, data = await self._next()
            await _reached(due)
            while not self._way.open.is_set():
                await self._way.open.wait()
            if not data:
                _shut(self._sink, socket.SHUT_WR)
                return
            passing, ends = self._way.allowed(data)
            self._chunks.popleft()
            self._way.waiting -= len(data)
            self._way.passed += len(passing)
            try:
                await asyncio.get_running_loop().sock_sendall(self._sink, passing)
            except OSError:
                ends = True
            if ends:
                self._cut()
                return

    async def _next(self) -> tuple[float, bytes]:
        while not self._chunks:
            self._news.clear()
            await self._news.wait()
        return self._chunks[0]

    def forget(self) -> None:
        self._way.waiting -= sum(len(data) for _, data in self._chunks)
        self._chunks.clear()


class _Connection:
    def __init__(
        self, ways: dict[Direction, _Way], client: socket.socket, target: tuple[str, int], patience: float
    ) -> None:
        self._ways = ways
        self._client = client
        self._target = target
        self._patience = patience
        self._task = asyncio.current_task()

    async def run(self) -> None:
        """From the moment a client connected until both sides have ended, or it is cut."""
        server = None
        streams: list[_Stream] = []
        try:
            server = await self._reach_target()
            for each in (self._client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            streams = [
                _Stream(self._ways["requests"], self._client, server, self.cut),
                _Stream(self._ways["replies"], server, self._client, self.cut),
            ]
            async with asyncio.TaskGroup() as group:
                for stream in streams:
                    group.create_task(stream.read())
                    group.create_task(stream.write())
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for stream in streams:
                stream.forget()
            for each in filter(None, (self._client, server)):
                # A forked child may have a copy of the descriptor: closing alone would not end the connection.
                _shut(each, socket.SHUT_RDWR)
                each.close()

    async def _reach_target(self) -> socket.socket:
        loop = asyncio.get_running_loop()
        gives_up = loop.time() + self._patience
        while True:
            server = socket.socket()
            server.setblocking(False)
            try:
                await loop.sock_connect(server, self._target)
                return server
            except BaseException as error:
                server.close()
                if not isinstance(error, ConnectionRefusedError) or loop.time() > gives_up:
                    raise
            await _reached(loop.time() + PAUSE)

    def cut(self) -> None:
        assert self._task is not None
        self._task.cancel()


class Proxy:
    """In front of `target`; `host` and `port` are where clients connect."""

    host = HOST

    def __init__(self, target: tuple[str, int], patience: float = 0.0) -> None:
        """`patience`: for how long clients stay connected although nobody listens at the target."""
        self.connections = 0
        """How many were accepted so far."""
        self._target = target
        self._patience = patience
        self._ways: dict[Direction, _Way] = {direction: _Way() for direction in DIRECTIONS}
        self._running: set[asyncio.Task[None]] = set()
        self._listening = False
        self._listener = _listener(None)
        self.port: int = self._listener.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen)

    # What happens to the bytes ----------------------------------------------------------------------------------------

    def delay(self, requests: float = 0.0, replies: float = 0.0) -> None:
        """From now on bytes go on this many seconds after they came; no arguments: at once."""

        def set_delays() -> None:
            self._ways["requests"].delay = requests
            self._ways["replies"].delay = replies

        self._do(set_delays)

    def replace(self, old: bytes, new: bytes, direction: Direction = "requests") -> None:
        """In all that arrives from now on; what arrives in two parts is not found."""
        self._do(lambda: setattr(self._ways[direction], "replaced", (old, new)))

    def hold(self, direction: Direction = "replies") -> None:
        """Keep what arrives from now on, of all connections, until `let_go`; `held` counts it. At about HELD_MOST bytes
        the proxy stops reading."""
        self._do(self._ways[direction].open.clear)

    def black_hole(self) -> None:
        """Hold both directions: connections stand, new ones are accepted, nothing comes through."""
        for direction in DIRECTIONS:
            self.hold(direction)

    def let_go(self) -> None:
        """Pass on what was held, in its order, and hold nothing more."""
        for way in self._ways.values():
            self._do(way.open.set)

    # What happens to the connections ----------------------------------------------------------------------------------

    def cut(self) -> None:
        """End all connections now; what had not been passed on is lost. On return both sides have been told."""
        asyncio.run_coroutine_threadsafe(self._cut_all(), self._loop).result()

    def cut_after(self, count: int, direction: Direction = "replies") -> None:
        """Once: exactly `count` more bytes pass in this direction, over all connections together, then the connection
        that carried the last of them is cut. 0 cuts when the next byte arrives, before it passes.
        """
        self._do(lambda: setattr(self._ways[direction], "bytes_left", count))

    def drop_reply(self, nth: int = 1) -> None:
        """Once: the `nth` reply from now on is lost, and its connection cut. Replies that arrive together are one."""
        self._do(lambda: setattr(self._ways["replies"], "chunks_left", nth))

    def spare(self) -> None:
        """Forget a `cut_after` or `drop_reply` that has not happened yet."""

        def forget() -> None:
            for way in self._ways.values():
                way.bytes_left = way.chunks_left = None

        self._do(forget)

    def armed(self) -> bool:
        """Whether a `cut_after` or `drop_reply` has not happened yet."""
        return any(way.bytes_left is not None or way.chunks_left is not None for way in self._ways.values())

    def lead_to(self, target: tuple[str, int]) -> None:
        """New connections reach another server; those that stand go on."""
        self._do(lambda: setattr(self, "_target", target))

    def refuse(self) -> None:
        """New connections are refused, as if nobody listened; those that stand go on."""
        self._do(self._stop_listening)

    def accept(self) -> None:
        """Listen again, at the same port."""

        def listen_again() -> None:
            self._listener = _listener(self.port)
            self._listen()

        self._do(listen_again)

    # What was seen ----------------------------------------------------------------------------------------------------

    @property
    def open_connections(self) -> int:
        return len(self._running)

    def arrived(self, direction: Direction) -> int:
        """Bytes that came in so far."""
        return self._ways[direction].arrived

    def passed(self, direction: Direction) -> int:
        """Bytes that were passed on so far."""
        return self._ways[direction].passed

    def held(self, direction: Direction = "replies") -> int:
        """Bytes of open connections that came in and were not passed on yet."""
        return self._ways[direction].waiting

    # The thread -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self.refuse()
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        give_back_port(self.port)

    def __enter__(self) -> "Proxy":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _do(self, order: Callable[[], T]) -> T:
        """Carried out on the loop's thread when this returns."""
        done: concurrent.futures.Future[T] = concurrent.futures.Future()

        def carry_out() -> None:
            try:
                done.set_result(order())
            except Exception as error:
                done.set_exception(error)

        self._loop.call_soon_threadsafe(carry_out)
        return done.result()

    def _listen(self) -> None:
        self._listening = True
        self._loop.add_reader(self._listener, self._take)

    def _take(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:
            return  # the client has gone again
        client.setblocking(False)
        self.connections += 1
        task = self._loop.create_task(self._serve(client))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        task.add_done_callback(lambda _: client.close())  # also if it is cut before its first step

    def _stop_listening(self) -> None:
        if self._listening:
            self._listening = False
            self._loop.remove_reader(self._listener)
            self._listener.close()

    async def _serve(self, client: socket.socket) -> None:
        await _Connection(self._ways, client, self._target, self._patience).run()

    async def _cut_all(self) -> None:
        await _cancelled(self._running)


async def _cancelled(tasks: set["asyncio.Task[None]"]) -> None:
    """Cancel these, and wait until they have ended."""
    tasks = set(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


async def _reached(due: float) -> None:
    if due <= asyncio.get_running_loop().time():
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout_at(due):
            await asyncio.Event().wait()


def _listener(port: int | None) -> socket.socket:
    """A listening socket at this port, or at any that is free."""
    while True:
        listener = socket.socket()
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port or reserved_port()))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if port or error.errno != errno.EADDRINUSE:
                raise


def _shut(which: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        which.shutdown(how)
