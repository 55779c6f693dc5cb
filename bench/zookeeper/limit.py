"""The limits: bare requests on a KazooClient, in one thread, with nothing around them.

    create+delete               a node that ends with the session, made and deleted; nobody looks who else is there
    create+get_children+delete  what Holdfast sends for a free lock: the first two leave together

They have no deadline, no renewal and no waiting. The second one reads the token, and whether its node is the first.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from bench.zookeeper.server import hosts

PARENT = "/bare"
CARD = b'{"host": "bench", "pid": 12345, "label": null, "ttl": 30.0}'
"""As long as Holdfast's."""

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
            creating = client.create_async(next(new), CARD, ephemeral=True, sequence=True, include_data=True)
            looking = client.get_children_async(PARENT)
            path, stat = creating.get()
            first = min(looking.get(), key=sequence_number)
            is_free = stat.czxid > 0 and path.endswith(first)
            client.delete(path)
            if not is_free:
                raise RuntimeError(NOT_FREE)

        yield pair


def sequence_number(node: str) -> str:
    return node[-10:]
