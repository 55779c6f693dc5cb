"""A server that is a network away: a relay in a process of its own, which passes everything on a while later.

    python -m bench.far PORT SECONDS

It prints the port that it listens on. One thread waits for what comes and for what is due: `select` counts in
microseconds, an event loop's timers in milliseconds.
"""

from __future__ import annotations

import heapq
import itertools
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

Server = Callable[[Path], AbstractContextManager[str]]


def behind(server: Server, seconds: float) -> Server:
    """The same server, with so much on the way in each direction."""

    @contextmanager
    def far(folder: Path) -> Iterator[str]:
        with server(folder) as url:
            parts = urlsplit(url)
            command = [sys.executable, "-m", "bench.far", str(parts.port), str(seconds)]
            relay = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
            try:
                assert relay.stdout is not None
                port = int(relay.stdout.readline())
                yield parts._replace(netloc=f"{parts.hostname}:{port}").geturl()
            finally:
                relay.terminate()
                relay.communicate()

    return far


class Relay:
    def __init__(self, port: int, seconds: float) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self._port = port
        self._seconds = seconds
        self._other: dict[socket.socket, socket.socket] = {}
        self._due: list[tuple[float, int, socket.socket, bytes]] = []
        self._order = itertools.count()

    def run(self) -> None:
        while True:
            left = max(0.0, self._due[0][0] - time.perf_counter()) if self._due else None
            readable, _, _ = select.select([self.listener, *self._other], [], [], left)
            for sock in readable:
                if sock is self.listener:
                    self._accept()
                elif sock in self._other:
                    self._read(sock)
            while self._due and self._due[0][0] <= time.perf_counter():
                _, _, sock, data = heapq.heappop(self._due)
                self._pass_on(sock, data)

    def _accept(self) -> None:
        near, _ = self.listener.accept()
        far = socket.create_connection(("127.0.0.1", self._port))
        for sock in (near, far):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._other |= {near: far, far: near}

    def _read(self, sock: socket.socket) -> None:
        try:
            data = sock.recv(65536)
        except OSError:
            data = b""
        entry = (time.perf_counter() + self._seconds, next(self._order), self._other[sock], data)
        heapq.heappush(self._due, entry)
        if not data:
            del self._other[sock]

    def _pass_on(self, sock: socket.socket, data: bytes) -> None:
        """Nothing is the end of it."""
        try:
            if data:
                sock.sendall(data)
                return
        except OSError:
            pass
        self._other.pop(sock, None)
        sock.close()


if __name__ == "__main__":
    relay = Relay(int(sys.argv[1]), float(sys.argv[2]))
    print(relay.listener.getsockname()[1], flush=True)
    relay.run()
