"""Servers that are no good, for the tests of deadlines: one that drips, one port that refuses, names that hang."""

import contextlib
import socket
import threading
from collections.abc import Iterator

HOST = "127.0.0.1"
PAUSE = 0.05
LONG = b"$500000000\r\n"
"""A reply of which there will never be an end."""


@contextlib.contextmanager
def dripping(greets: bool = True) -> Iterator[int]:
    """The port of a server that answers a script with a byte now and then; without `greets`, everything."""
    over = threading.Event()
    with socket.create_server((HOST, 0)) as listener:
        threading.Thread(target=_accept, args=(listener, over, greets), daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)


def _accept(listener: socket.socket, over: threading.Event, greets: bool) -> None:
    with contextlib.suppress(OSError):
        while not over.is_set():
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, over, greets), daemon=True).start()


def _serve(client: socket.socket, over: threading.Event, greets: bool) -> None:
    with client, contextlib.suppress(OSError):
        while data := client.recv(65536):
            if not greets or b"EVAL" in data:
                _drip(client, over)
            elif b"INFO" in data:
                client.sendall(b"$0\r\n\r\n")
            else:
                client.sendall(b"+OK\r\n" * data.count(b"*"))


def _drip(client: socket.socket, over: threading.Event) -> None:
    client.sendall(LONG)
    while not over.wait(PAUSE):
        client.sendall(b"x")
