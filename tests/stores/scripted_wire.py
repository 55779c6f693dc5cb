"""A Wire over a pair of sockets, and the other side of it in the hands of a test: no engine, one line for each request
and one for each answer."""

import contextlib
import math
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gripfast import StoreUnavailable
from gripfast.stores.sql.ports import Answer, Fault, LinkDown, Refusal, Rows
from gripfast.stores.sql.statement import Query, Statement
from support.waiting import until

HURRIED = 10.0
"""Seconds that a test waits for something that comes at once."""


def ask(text: str) -> list[Query]:
    return [Query(Statement(text))]


class ScriptedWire:
    """On a bare descriptor: one that is dropped, like those of engines, is closed without a warning."""

    birth = "1"
    is_proxied = False

    def __init__(self, sock: socket.socket, session: int) -> None:
        sock.setblocking(False)
        self.session = session
        self._fd = sock.detach()
        self._unread = b""
        self._pushes: list[str] = []
        self._is_asked = False

    def fileno(self) -> int:
        return self._fd

    def send(self, queries: Sequence[Query]) -> bool:
        if self._is_asked:
            raise OSError("a request is under way")
        self._is_asked = True
        os.write(self._fd, b";".join(each.statement.numbered for each in queries) + b"\n")
        return True

    def flush(self) -> bool:
        return True

    def receive(self) -> Answer | None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, 65536)
            if not data:
                raise ConnectionResetError("the server has ended it")
            self._unread += data
        while b"\n" in self._unread:
            line, self._unread = self._unread.split(b"\n", 1)
            word, _, rest = line.decode().partition(" ")
            if word == "push":
                self._pushes.append(rest)
                continue
            self._is_asked = False
            if word == "gone":
                return Refusal("gone", "57P01", rest)
            return [Rows([(rest.encode(),)], 1)]
        return None

    def pushes(self) -> list[str]:
        pushes, self._pushes = self._pushes, []
        return pushes

    def cut(self) -> None:
        handle = socket.socket(fileno=os.dup(self._fd))
        with handle, contextlib.suppress(OSError):
            handle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class Peer:
    """The server's side of one connection."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(HURRIED)
        self._sock = sock
        self._queues = sock.makefile("rb")

    def hears(self) -> str:
        """The next request; nothing if the client has hung up."""
        return self._queues.readline().decode().strip()

    def says(self, line: str) -> None:
        self._sock.sendall(line.encode() + b"\n")

    def answers(self) -> str:
        """Its next request is answered with itself."""
        request = self.hears()
        self.says(f"row {request}")
        return request

    def hangs_up(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._queues.close()
        self._sock.close()


class ScriptedDialect:
    """Every connection that was made, first one first, is in `peers`."""

    name = where = database = "scripted"
    mode = "lease"
    pushes = True
    scripts: Any

    def __init__(self) -> None:
        self.scripts = self
        self.peers: list[Peer] = []
        self.dials = 0
        self.is_down = False
        self.may_dial = threading.Event()
        self.may_dial.set()

    def dial(self, timeout: float, is_shared: bool, within: float = math.inf) -> ScriptedWire:
        self.dials += 1
        self.may_dial.wait(HURRIED)
        if self.is_down:
            raise LinkDown(Fault(StoreUnavailable("it is down")))
        mine, theirs = socket.socketpair()
        self.peers.append(Peer(theirs))
        return ScriptedWire(mine, len(self.peers))

    rw_modes: Mapping[str, bool] = {}

    def rw_scripts(self) -> Any:
        raise NotImplementedError

    def permit_scripts(self) -> Any:
        return self

    def refused(self, refusal: Refusal) -> Fault:
        return Fault(StoreUnavailable(refusal.message), refusal.kind)

    def listen(self, channel: str) -> list[Query]:
        return ask(f"listen {channel}")

    def unlisten(self, channel: str) -> list[Query]:
        return ask(f"unlisten {channel}")

    def peer(self, number: int) -> Peer:
        """When there is one."""
        return until(lambda: self.peers[number : number + 1])[0]


@contextlib.contextmanager
def scripted() -> Iterator[ScriptedDialect]:
    dialect = ScriptedDialect()
    try:
        yield dialect
    finally:
        dialect.may_dial.set()
        for peer in dialect.peers:
            peer.close()


def rows(answer: Answer | Fault | None) -> str:
    """What an answer says that is none of trouble."""
    assert isinstance(answer, list), answer
    return (answer[-1].rows[0][0] or b"").decode()
