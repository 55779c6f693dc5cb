"""Five real redis-servers for the tests of Redlock, each a Redis of its own.

`shared_nodes()` are those that most tests use, each test with a prefix of its own. A test that stops, kills or
configures a node starts nodes for itself.
"""

import atexit
import contextlib
import os
import threading
from collections.abc import Iterator, Sequence

from support.redis_server import HOST, RedisServer

NODES = 5
NODE_TIMEOUT = 1
"""Seconds; generous, because nothing is wrong with these nodes, and a busy machine is no fault of theirs."""

_shared: list[RedisServer] = []
_starting = threading.Lock()


def shared_nodes() -> list[RedisServer]:
    """The nodes of this test process, started when first asked for. Never stop, pause or configure one."""
    with _starting:
        if not _shared or not all(node.running for node in _shared):
            _shared[:] = [RedisServer() for _ in range(NODES)]
            atexit.register(_close_in, os.getpid(), tuple(_shared))
        return list(_shared)


def _close_in(process: int, nodes: Sequence[RedisServer]) -> None:
    """At exit of that process; a forked child has the same exit handlers, but not the nodes."""
    if os.getpid() == process:
        for node in nodes:
            node.close()


def redlock_url(nodes: Sequence[RedisServer], **options: object) -> str:
    """For `gripfast.connect`, with these options in its query."""
    query = "&".join(f"{name}={value}" for name, value in options.items())
    return f"redlock://{','.join(f'{HOST}:{node.port}' for node in nodes)}" + (f"?{query}" if query else "")


@contextlib.contextmanager
def lock_space(prefix: str) -> Iterator[str]:
    """The URL of the shared nodes' locks with this prefix, which must be unique; its keys are removed afterwards."""
    nodes = shared_nodes()
    try:
        yield redlock_url(nodes, prefix=prefix, request_timeout=NODE_TIMEOUT)
    finally:
        for node in nodes:
            node.forget(prefix)
