"""The stores that the conformance suite runs over. A new store joins by one entry in STORES.

An entry says how to get an empty lock space: a context manager that yields a URL nobody else uses. What a store can not
do it tells by its capabilities; no test asks for its name.

The stores in SQL are one code for two engines, three modes and two colours. A test need not run over all twelve every
time: `is_in_turn` takes two of them in turns, of two modes, so that every one of the twelve has its share of the tests.
Redlock and ZooKeeper are slow, too: each test runs over them in one colour. GRIPFAST_SWEEP=full takes all.
"""

import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import redis_server, redlock_nodes
from support.colours import COLOURS
from support.sql_process import SqlServer
from support.sql_servers import mariadb_server, postgres_server
from support.sweeping import FULL
from support.zookeeper_servers import zookeeper_server


@dataclass(frozen=True)
class StoreUnderTest:
    name: str
    fresh: Callable[[Path], AbstractContextManager[str]]  # given a scratch directory of the test's own
    mode: str = ""  # of a store in SQL; or what kind of slow store it is


@contextmanager
def _memory(scratch: Path) -> Iterator[str]:
    yield f"memory://{uuid.uuid4().hex}"


@contextmanager
def _sqlite(scratch: Path) -> Iterator[str]:
    yield f"sqlite:///{scratch.absolute()}/locks.db"


@contextmanager
def _redis(scratch: Path) -> Iterator[str]:
    with redis_server.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield url


@contextmanager
def _redlock(scratch: Path) -> Iterator[str]:
    with redlock_nodes.lock_space(f"{uuid.uuid4().hex}:") as url:
        yield f"{url}&max_ttl=86400"  # any ttl that a lock may have


def _sql(engine: str, server: Callable[[], SqlServer]) -> Iterator[StoreUnderTest]:
    for mode in ("lease", "row", "advisory"):
        name = engine if mode == "lease" else f"{engine}-{mode}"
        yield StoreUnderTest(name, lambda _, mode=mode: nullcontext(server().lock_space(mode=mode)), mode)


STORES = [
    StoreUnderTest("memory", _memory),
    StoreUnderTest("sqlite", _sqlite),
    StoreUnderTest("redis", _redis),
    StoreUnderTest("redlock", _redlock, "nodes"),
    *_sql("postgres", postgres_server),
    *_sql("mysql", mariadb_server),
    StoreUnderTest("zookeeper", lambda _: nullcontext(zookeeper_server().lock_space()), "ensemble"),
]


def is_in_turn(test: str, store: StoreUnderTest, colour: str | None) -> bool:
    """Whether the test of this name runs over the store in this colour; None if it has but one."""
    if not store.mode or FULL:
        return True
    number = zlib.crc32(test.encode())
    is_mysql = store.name.startswith("mysql")
    turns = {  # (runs on this engine, in asyncio)
        "nodes": (True, not number & 2),
        "ensemble": (True, bool(number & 2)),
        "lease": (is_mysql == bool(number & 8), bool(number & 2)),
        "row": (is_mysql == bool(number & 1), bool(number & 4)),
        "advisory": (is_mysql != bool(number & 1), not number & 4),
    }
    is_engines, is_in_asyncio = turns[store.mode]
    if store.mode == ("lease", "row", "advisory")[number // 16 % 3]:
        return False  # two of three modes
    return is_engines and colour in (None, "asyncio" if is_in_asyncio else "blocking")


def out_of_turn(item: pytest.Item) -> bool:
    """A test of one colour says so by the COLOUR of its module, if it is one of many such."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    chosen = item.callspec.params.values()
    stores = [_IN_SQL.get(value, value) for value in chosen if isinstance(value, str | StoreUnderTest)]
    colours = [value for value in chosen if isinstance(value, str) and value in COLOURS]
    colour = colours[0] if colours else getattr(item.module, "COLOUR", None)
    return not all(is_in_turn(_test(item), store, colour) for store in stores if isinstance(store, StoreUnderTest))


_IN_SQL = {f"{store.name.partition('-')[0]}-{store.mode}": store for store in STORES if store.mode}


def _test(item: pytest.Function) -> str:
    """What it is called without its store and colour; the scenarios of a sweep take turns of their own."""
    scenario = item.callspec.params.get("scenario") or item.callspec.params.get("main")
    return item.nodeid.partition("[")[0] + getattr(scenario, "__name__", "")
