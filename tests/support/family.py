"""Stores that processes share, for tests of semaphores, run-once and hand-over among processes."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from support.redis_server import lock_space
from support.sql_servers import mariadb_server, postgres_server
from support.zookeeper_servers import zookeeper_server

LONG = os.environ.get("GRIPFAST_CHAOS") == "long"
"""As many processes, and for as long, as the promises of the pages are meant for."""

KEEPS = ["sqlite", "redis", "postgres", "mysql"]
"""They also have kept releases and hand-over."""
PERMITS = [*KEEPS, "zookeeper"]


@contextlib.contextmanager
def store_url(store: str, folder: Path) -> Iterator[str]:
    match store:
        case "sqlite":
            yield f"sqlite:///{folder / 'locks.db'}"
        case "redis":
            with lock_space("family") as url:
                yield url
        case "postgres":
            yield postgres_server().lock_space()
        case "mysql":
            yield mariadb_server().lock_space()
        case _:
            yield zookeeper_server().lock_space()
