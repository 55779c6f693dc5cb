"""What the tests of old faults of the SQL stores share: a server of their own, and a proxy that holds requests up."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from support.lanes import Lanes
from support.sql_servers import MariaServer, PostgresServer

ENGINES: dict[str, Callable[..., Any]] = {"postgres": PostgresServer, "mysql": MariaServer}
SESSION_MODES = ("row", "advisory")
MODES = ("lease", *SESSION_MODES)


@contextmanager
def lanes_to(server: Any) -> Iterator[Lanes]:
    with Lanes(server.port) as lanes:
        yield lanes
        lanes.let_go()


def url_through(lanes: Lanes, server: Any, **options: object) -> str:
    return str(server.lock_space(**options)).replace(f":{server.port}/", f":{lanes.port}/")


def numbers(server: Any) -> set[int]:
    """What the server calls the sessions there are."""
    return {session.id for session in server.sessions()}


def owed(client: Any) -> int:
    """Owners who may still have something at the engine."""
    return len(client._runtime.env.ledger)
