"""Stores that processes share, for tests of semaphores, run-once, election and hand-over among processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from support.stores import STORES

LONG = os.environ.get("GRIPFAST_CHAOS") == "long"
"""As many processes, and for as long, as the promises of the pages are meant for."""

KEEPS = ["sqlite", "redis", "postgres", "mysql", "sentinel", "cluster", "valkey", "etcd"]
"""They also have kept releases and hand-over."""
PERMITS = [*KEEPS, "zookeeper"]
FOR_ONCE = {"sentinel": "&replicas=2", "cluster": "&replicas=1"}
"""What `once()` needs, where a failover could forget what is done."""


@contextlib.contextmanager
def store_url(store: str, folder: Path) -> Iterator[str]:
    (chosen,) = (each for each in STORES if each.name == store)
    with chosen.fresh(folder) as url:
        yield url
