"""A TCP proxy whose connections are treated one by one: each is a lane of its own.

    with Lanes(server.port) as lanes:
        client = gripfast.connect(lanes.url())
        ...
        for lane in lanes.hold():            # what is sent on these from now on stays here
            ...
        lanes.let_go()                       # and arrives late

`support/proxy.py` treats all connections alike, which is enough for most tests.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType

HOST = "127.0.0.1"
CHUNK = 65536


class Lane:
    """One connection. An order is in force when its call returns."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.sent = b""
        """What the client has said so far."""
        self.heard = b""
        """What the server has said so far."""
        self.held = b""
        """What the client has said and the server has not heard yet."""
        self._client = client
        self._server = server
        self._doing = threading.Lock()
        self._holds = False
        self._holds_from: bytes | None = None
        self._is_silent = False
        self._client_has_ended = False
        self._question: bytes | None = None
        self._garbage = b""
        self._asked_since = 0
        for each in (client, server):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def hold(self) -> None:
        with self._doing:
            self._holds = True

    def hold_from(self, marker: bytes) -> None:
        """Hold what the client sends from the request on in which this occurs."""
        with self._doing:
            self._holds_from = marker

    def let_go(self) -> None:
        """What was held arrives now, and with it the end if the client has hung up meanwhile."""
        with self._doing:
            self._holds, self._holds_from = False, None
            held, self.held = self.held, b""
            self._pass(self._server, held)
            if self._client_has_ended:
                _end(self._server, socket.SHUT_WR)

    def silence(self) -> None:
        """Nothing comes through any more, and neither side is told."""
        with self._doing:
            self._is_silent = True

    def lose_server(self) -> None:
        """The server sees the end of the connection, the client does not."""
        self.silence()
        _end(self._server, socket.SHUT_RDWR)

    def babble(self, garbage: bytes, to: bytes = b"") -> None:
        """Instead of replies to requests with `to` in them, and of all later ones, the client hears this."""
        with self._doing:
            self._question, self._garbage, self._asked_since = to, garbage, len(self.sent)

    def lose_reply(self, to: bytes) -> None:
        """The reply to the next request with `to` in it does not arrive, but the end of the connection does."""
        self.babble(b"", to)

    # The two threads --------------------------------------------------------------------------------------------------

    def carry_requests(self) -> None:
        while data := _received(self._client):
            with self._doing:
                self.sent += data
                if self._holds_from is not None and self._holds_from in data:
                    self._holds = True
                if self._holds:
                    self.held += data
                elif not self._is_silent:
                    self._pass(self._server, data)
        with self._doing:
            self._client_has_ended = True
            if not self._holds:
                _end(self._server, socket.SHUT_WR)

    def carry_replies(self) -> None:
        while data := _received(self._server):
            with self._doing:
                self.heard += data
                if self._question is not None and self._question in self.sent[self._asked_since :]:
                    data = self._garbage
                if not self._is_silent:
                    self._pass(self._client, data)
                if not data:
                    break
        with self._doing:
            if not self._is_silent:
                _end(self._client, socket.SHUT_WR)

    def close(self) -> None:
        for each in (self._client, self._server):
            _end(each, socket.SHUT_RDWR)
            each.close()

    def _pass(self, to: socket.socket, data: bytes) -> None:
        with contextlib.suppress(OSError):
            to.sendall(data)


class Lanes:
    """In front of a server on this machine; clients connect to `port`."""

    def __init__(self, server_port: int) -> None:
        self._server = (HOST, server_port)
        self._lanes: list[Lane] = []
        self._threads: list[threading.Thread] = []
        self._greet: Callable[[Lane], object] = _as_usual
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._taking = self._start(self._take)

    def url(self, **options: object) -> str:
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"redis://{HOST}:{self.port}/0" + (f"?{query}" if query else "")

    def all(self) -> list[Lane]:
        """Every connection so far, in the order in which they came."""
        return list(self._lanes)

    def that_said(self, marker: bytes) -> list[Lane]:
        return [lane for lane in self.all() if marker in lane.sent]

    def greet(self, order: Callable[[Lane], object]) -> None:
        """What is done to every connection that comes from now on."""
        self._greet = order

    def lead_to(self, server_port: int) -> None:
        """Connections that come from now on lead to another server."""
        self._server = (HOST, server_port)

    def hold(self) -> list[Lane]:
        """Hold the requests of every connection there is; later ones are not held."""
        held = self.all()
        for lane in held:
            lane.hold()
        return held

    def let_go(self) -> None:
        self._greet = _as_usual
        for lane in self.all():
            lane.let_go()

    def close(self) -> None:
        _end(self._listener, socket.SHUT_RDWR)
        self._taking.join()
        self._listener.close()
        for lane in self.all():
            lane.close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> "Lanes":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _take(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            lane = Lane(client, socket.create_connection(self._server))
            self._greet(lane)
            self._lanes.append(lane)
            self._threads += [self._start(lane.carry_requests), self._start(lane.carry_replies)]

    def _start(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, name="lane", daemon=True)
        thread.start()
        return thread


def _as_usual(lane: Lane) -> None:
    """Nothing special."""


def _received(source: socket.socket) -> bytes:
    try:
        return source.recv(CHUNK)
    except OSError:
        return b""


def _end(which: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):
        which.shutdown(how)
