"""Ports of tests: those of servers, which nobody else gets while a server is down, and one that refuses connections."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

HOST = "127.0.0.1"
PORTS = range(20000, 32000)
"""Below the ports that systems give to outgoing connections: the port is still free when a server is restarted."""

_reserved: dict[int, int] = {}
"""By port: a file, locked for as long as this process has it."""
_bound: list[socket.socket] = []


def reserved_port(among: Sequence[int] = PORTS) -> int:
    """One that no other test gets until this process ends or gives it back.

    Otherwise the server of another test may have it while ours is down, and answer in its place.
    """
    folder = Path(tempfile.gettempdir()) / f"gripfast-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        port = random.choice(among)
        if port not in _reserved and _reserve(port, folder / str(port)):
            return port


def _reserve(port: int, path: Path) -> bool:
    file = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return False
    _reserved[port] = file
    return True


def give_back_port(port: int) -> None:
    with contextlib.suppress(KeyError):  # of a server that another process has started
        os.close(_reserved.pop(port))


def closed_port() -> int:
    """Somebody has it, and nobody listens. A port that nobody has may become anybody's, even that of whoever connects:
    such a connection would be one with itself."""
    nobody = socket.socket()
    nobody.bind((HOST, 0))
    _bound.append(nobody)
    return int(nobody.getsockname()[1])
