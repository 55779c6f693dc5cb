"""A database whose encoding lacks characters: what it can't store is refused at once, and in words."""

from collections.abc import Iterator
from typing import Any

import pytest

from gripfast import ConfigurationError
from regressions.redis_stage import played
from regressions.sql_stage import MODES
from support.colours import COLOURS, World
from support.sql_servers import ADMIN, postgres_server

SETTINGS = "ENCODING 'LATIN1' TEMPLATE template0 LOCALE_PROVIDER libc LC_COLLATE 'C' LC_CTYPE 'C'"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    server = postgres_server()
    name = f"latin1_{id(server)}"
    server.execute(f"CREATE DATABASE {name} OWNER gripfast {SETTINGS}", database=ADMIN)
    yield name
    server.execute(f"DROP DATABASE {name} WITH (FORCE)", database=ADMIN)


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=COLOURS)
def world(request: pytest.FixtureRequest, database: str, mode: str) -> World:
    url = postgres_server().url_with(database=database, mode=mode, connect_patience=600)
    return World(url, COLOURS[request.param])


@played
async def test_what_can_not_be_stored_is_refused_at_once(world: World) -> None:
    alice = world.actor()
    for name, label in (("日本", None), ("ok", "日本")):
        with pytest.raises(ConfigurationError, match="encoding"):
            await alice.acquire(name, wait=None, label=label)
    assert not len(alice.client._runtime.env.ledger)
    await alice.release(await alice.acquire("ok"))


@played
async def test_what_can_be_stored_is_listed_by_any_prefix(world: World) -> None:
    alice = world.actor()
    names = ["y", "é", "ÿ", "ÿÿ", "þ"]
    leases: list[Any] = [await alice.acquire(name) for name in names]
    assert {info.name for info in await alice.listing("ÿ")} == {"ÿ", "ÿÿ"}
    assert {info.name for info in await alice.listing()} >= set(names)
    for lease in leases:
        await alice.release(lease)
