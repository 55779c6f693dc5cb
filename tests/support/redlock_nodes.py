"""Five real redis-servers for the tests of Redlock, each a Redis of its own.

`shared_nodes()` are those that most tests use, each test with a prefix of its own. A test that stops, kills or
configures a node starts nodes for itself.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence

from support.redis_server import HOST, RedisServer, for_all

NODES = 5
NODE_TIMEOUT = 1
"""Seconds; generous, because nothing is wrong with these nodes, and a busy machine is no fault of theirs."""


@functools.cache
def shared_nodes() -> list[RedisServer]:
    """The nodes of this test run, started when first asked for. Never stop, pause or configure one."""
    return for_all("redlock", lambda: [RedisServer() for _ in range(NODES)])


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
