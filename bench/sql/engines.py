"""The two engines, and what each mode of Gripfast is compared with there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bench.gripfast_pair import Address
from bench.locks import Make
from bench.scenario import Place
from bench.sql import limit
from bench.sql.limit import Pair
from bench.sql.peers import MARIA_PEERS, POSTGRES_PEERS
from bench.sql.servers import counting_postgres, maria_server, postgres_server

LEASE, ROW, ADVISORY = MODES = ("lease", "row", "advisory")

Server = Callable[[Path], AbstractContextManager[str]]
Bare = Callable[[str], AbstractContextManager[Pair]]
"""Connects to a URL, and gives a function that takes a lock and gives it back."""

LIMITS: Mapping[str, Bare] = {LEASE: limit.lease, ROW: limit.row, ADVISORY: limit.advisory}


@dataclass(frozen=True)
class Engine:
    name: str
    server: Server
    counting: Server
    """The same, where statements can be counted."""
    peers: tuple[Make, ...]
    needs: tuple[str, ...]
    """Of Gripfast."""


POSTGRES = Engine(
    name="PostgreSQL",
    server=postgres_server,
    counting=counting_postgres,
    peers=POSTGRES_PEERS,
    needs=("psycopg",),
)
MARIA = Engine(
    name="MariaDB",
    server=maria_server,
    counting=maria_server,
    peers=MARIA_PEERS,
    needs=("PyMySQL",),
)


def ours(mode: str) -> str:
    """How Gripfast is called among contestants."""
    return f"gripfast {mode}"


def ours_async(mode: str) -> str:
    return f"gripfast {mode}, asyncio"


def address(mode: str) -> Address:
    def url(place: Place) -> str:
        return f"{place.url}?mode={mode}"

    return url
