"""Five nodes of Redlock that keep everything they are told in a file, and what the tests of them have in common."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import gripfast
from chaos.stage import Stage
from support.jumping_clock import JumpingClock
from support.redis_server import HOST, RedisServer
from support.redlock_nodes import NODES

TTL = 1.0
MAX_TTL = 1.0
"""What the clients are told, so that a node which came back empty votes again after so many seconds."""
NODE_TIMEOUT = 0.3
"""Seconds: far above what a node takes that is up, also on a machine with other things to do."""
RECOVERED = TTL + 1.5
"""Seconds until the lock is in use: someone may just have begun the longest pause between two tries."""
LOAD: dict[str, Any] = {"request_timeout": NODE_TIMEOUT, "ttls": (TTL,), "waits": (0.0, 0.0, 0.02, 0.2, 1.0)}
KEEPS_ALL = ("--appendonly", "yes")
"""Not synced: what the process has written is the system's before anyone is answered, and stays when it is killed."""


@contextmanager
def five_nodes(clocks: Sequence[JumpingClock] = ()) -> Iterator[list[RedisServer]]:
    """`clocks`: one for each, if they are to have their own."""
    environments = [clock.environment for clock in clocks] or [{}] * NODES
    with ExitStack() as stack:
        yield [stack.enter_context(RedisServer(*KEEPS_ALL, environment=each)) for each in environments]


def as_new(nodes: Sequence[RedisServer]) -> str:
    """Whatever was done to them before, they run and know nothing; the URL of their locks. A cluster that is new has to
    be seen whole once, and a busy machine may take its time for that."""
    for node in nodes:
        if not node.running:
            node.restart()
        node.resume()
        with node.client() as client:
            client.flushall()
    url = url_of(node.port for node in nodes)
    with gripfast.connect(url, request_timeout=10.0) as client:
        client.lock("first of all", ttl=MAX_TTL).acquire(wait=20).release()
    return url


def url_of(ports: Iterable[int]) -> str:
    return f"redlock://{','.join(f'{HOST}:{port}' for port in ports)}?max_ttl={MAX_TTL:g}"


def some(stage: Stage) -> list[RedisServer]:
    """One or two: the others are a majority."""
    return stage.chance.sample(list(stage.servers), stage.chance.randint(1, NODES // 2))
