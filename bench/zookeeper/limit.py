"""The limits: bare requests on a KazooClient, in one thread or on one event loop, with nothing around them.

    create+delete               a node that ends with the session, made and deleted; nobody looks who else is there
    create+get_children+delete  what Gripfast sends for a free lock: the first two leave together

They have no deadline, no renewal and no waiting. The second one reads the token, and whether its node is the first.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import count
from typing import Any

from bench.redis.aio import Pair as AsyncPair
from bench.zookeeper.server import hosts

PARENT = "/bare"
CARD = b'{"host": "bench", "pid": 12345, "label": null, "ttl": 30.0}'
"""As long as Gripfast's."""

Pair = Callable[[], None]
"""Takes a lock and gives it back."""

NOT_FREE = "the bare lock was not free"


@contextmanager
def kazoo_client(url: str) -> Iterator[Any]:
    client = importlib.import_module("kazoo.client").KazooClient(hosts(url))
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def nodes() -> Iterator[str]:
    """What their names begin with."""
    return (f"{PARENT}/{number:032x}__lock__" for number in count(1))


@contextmanager
def create_delete(url: str) -> Iterator[Pair]:
    with kazoo_client(url) as client:
        client.ensure_path(PARENT)
        new = nodes()

        def pair() -> None:
            client.delete(client.create(next(new), CARD, ephemeral=True, sequence=True))

        yield pair


@contextmanager
def create_look_delete(url: str) -> Iterator[Pair]:
    with kazoo_client(url) as client:
        client.ensure_path(PARENT)
        new = nodes()

        def pair() -> None:
            creating, looking = sent_together(client, next(new))
            (path, stat), children = creating.get(), looking.get()
            client.delete(path)
            check_free(path, stat, children)

        yield pair


@asynccontextmanager
async def create_look_delete_on_a_loop(url: str) -> AsyncIterator[Callable[[str], AsyncPair]]:
    with kazoo_client(url) as client:
        client.ensure_path(PARENT)
        loop, new = asyncio.get_running_loop(), nodes()

        def answer(asked: Any) -> asyncio.Future[Any]:
            future = loop.create_future()
            asked.rawlink(lambda answered: loop.call_soon_threadsafe(future.set_result, answered))
            return future

        async def pair() -> None:
            creating, looking = map(answer, sent_together(client, next(new)))
            (path, stat), children = (await creating).get(), (await looking).get()
            (await answer(client.delete_async(path))).get()
            check_free(path, stat, children)

        yield lambda name: pair


def sent_together(client: Any, node: str) -> tuple[Any, Any]:
    creating = client.create_async(node, CARD, ephemeral=True, sequence=True, include_data=True)
    return creating, client.get_children_async(PARENT)


def check_free(path: str, stat: Any, children: list[str]) -> None:
    first = min(children, key=lambda node: node[-10:])
    if stat.czxid <= 0 or not path.endswith(first):
        raise RuntimeError(NOT_FREE)
