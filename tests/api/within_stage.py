"""Where locks are that can be taken in a caller's own transaction, and who takes them."""

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

import gripfast
from gripfast import InTransaction
from support.callers import KINDS, AioMySQL, Application, Asyncpg, Psycopg, PyMySQL
from support.sql_servers import mariadb_server, postgres_server

SERVERS: dict[str, Callable[[], Any]] = {"postgresql": postgres_server, "mysql": mariadb_server}


class Place(NamedTuple):
    """Where the locks are."""

    engine: str
    mode: str

    @property
    def server(self) -> Any:
        return SERVERS[self.engine]()

    def __str__(self) -> str:
        return f"{self.engine} {self.mode}"


PLACES = [Place("postgresql", "row"), Place("postgresql", "advisory"), Place("mysql", "row")]
WAYS = [(place, kind) for place in PLACES for kind in KINDS if kind.engine == place.engine]
MAIN_WAYS = [(place, kind) for place, kind in WAYS if kind in (Psycopg, Asyncpg, PyMySQL, AioMySQL)]
BLOCKING_WAYS = [(place, kind) for place, kind in MAIN_WAYS if not kind.is_async]


def named(way: object) -> str:
    return str(way) if isinstance(way, Place) else str(getattr(way, "kind", way))


every_way = pytest.mark.parametrize(("place", "kind"), WAYS, ids=named)
main_ways = pytest.mark.parametrize(("place", "kind"), MAIN_WAYS, ids=named)
blocking_ways = pytest.mark.parametrize(("place", "kind"), BLOCKING_WAYS, ids=named)

Kind = type[Application]


def full_name(url: str, name: str) -> str:
    (prefix,) = parse_qs(urlsplit(url).query)["prefix"]
    return prefix + name


async def within(url: str, caller: Application, wait: float | None = 0, **settings: Any) -> InTransaction:
    """With a client of its own, in the caller's colour; off the loop, where it would block."""
    await caller.begin()
    if caller.is_async:
        async with gripfast.connect_async(url) as client:
            return await client.lock("stock", **settings).within(caller.given, wait)
    return await asyncio.to_thread(within_blocking, url, caller.given, wait, settings)


async def within_as_set(url: str, caller: Application, wait: float) -> InTransaction:
    """By the wait of the lock."""
    if caller.is_async:
        async with gripfast.connect_async(url) as client:
            return await client.lock("stock", wait=wait).within(caller.given)
    with gripfast.connect(url) as client:
        return await asyncio.to_thread(client.lock("stock", wait=wait).within, caller.given)


def within_blocking(url: str, connection: Any, wait: float | None, settings: dict[str, Any]) -> InTransaction:
    with gripfast.connect(url) as client:
        return client.lock("stock", **settings).within(connection, wait)


async def taken(lock: gripfast.Lock) -> bool:
    """Whether a lease can be had right now: tried from a thread, so that an asyncio caller may go on."""
    lease = await asyncio.to_thread(lock.try_acquire)
    if lease is not None:
        await asyncio.to_thread(lease.release)
    return lease is None
