"""A port that refuses connections for as long as this process lives."""

import socket

HOST = "127.0.0.1"
_bound: list[socket.socket] = []


def closed_port() -> int:
    """Somebody has it, and nobody listens. A port that nobody has may become anybody's, even that of whoever connects:
    such a connection would be one with itself."""
    nobody = socket.socket()
    nobody.bind((HOST, 0))
    _bound.append(nobody)
    return int(nobody.getsockname()[1])
