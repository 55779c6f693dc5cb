"""`lock.within(connection)` behind a savepoint: what a rollback frees, what others see, what `durable` refuses."""

import asyncio
from typing import Any

import psycopg
import pytest

import gripfast
from api.within_stage import PLACES, Kind, Place, main_ways, taken, within
from gripfast import ConfigurationError
from support.both_colours import staged
from support.callers import AlchemyPsycopg, Application, Psycopg, Psycopg2, PyMySQL, opened

POSTGRES = [place for place in PLACES if place.engine == "postgresql"]
MYSQL = [place for place in PLACES if place.engine == "mysql"]


def seen(client: gripfast.Client) -> int | None:
    info = client.inspect("stock")
    return info.token if info else None


@pytest.mark.parametrize("place", POSTGRES, ids=str)
@pytest.mark.parametrize("kind", [Psycopg, Psycopg2, AlchemyPsycopg], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after waiting"])
@staged
async def test_on_postgres_a_rollback_to_an_older_savepoint_frees_it_and_others_see_that(
    kind: Kind, url: str, client: gripfast.Client, place: Place, waits: bool
) -> None:
    async with opened(kind, place.server.url) as caller:
        await caller.execute("SAVEPOINT earlier")
        held = await _held(url, client, caller, waits)
        assert seen(client) == held.token
        await caller.execute("ROLLBACK TO SAVEPOINT earlier")
        assert seen(client) is None
        assert list(client.list()) == []
        assert not client.force_release("stock")
        assert not await taken(client.lock("stock"))
        assert await caller.execute("SELECT 1") == [(1,)]


async def _held(url: str, client: gripfast.Client, caller: Application, waits: bool) -> gripfast.InTransaction:
    if not waits:
        return await within(url, caller)
    lease = client.lock("stock").acquire()
    waiter = asyncio.create_task(within(url, caller, 30))
    await asyncio.wait([waiter], timeout=0.2)
    lease.release()
    return await waiter


@pytest.mark.parametrize("place", POSTGRES, ids=str)
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after waiting"])
@staged
async def test_on_postgres_it_outlives_savepoints_that_are_newer_or_released(
    url: str, client: gripfast.Client, place: Place, waits: bool
) -> None:
    async with opened(Psycopg, place.server.url) as caller:
        await caller.execute("SAVEPOINT released")
        held = await _held(url, client, caller, waits)
        await caller.execute("RELEASE SAVEPOINT released")
        assert seen(client) == held.token
        await caller.execute("SAVEPOINT newer")
        again = await within(url, caller)
        await caller.execute("ROLLBACK TO SAVEPOINT newer")
        assert seen(client) == again.token
        assert await taken(client.lock("stock"))
        await caller.commit()
        assert seen(client) is None


@pytest.mark.parametrize("place", MYSQL, ids=str)
@pytest.mark.parametrize("was_used", [False, True])
@staged
async def test_on_mariadb_a_rollback_frees_it_if_the_savepoint_is_older_than_all_else(
    url: str, client: gripfast.Client, place: Place, table: str, was_used: bool
) -> None:
    async with opened(PyMySQL, place.server.url) as caller:
        await caller.execute("BEGIN")
        if was_used:
            await caller.execute(f"INSERT INTO {table} VALUES (1)")
        await caller.execute("SAVEPOINT earlier")
        held = await within(url, caller)
        await caller.execute("ROLLBACK TO SAVEPOINT earlier")
        assert seen(client) == (held.token if was_used else None)
        assert await taken(client.lock("stock")) == was_used


@main_ways
@staged
async def test_a_durable_lock_is_refused_behind_a_savepoint_before_anything_is_locked(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    async with opened(kind, place.server.url) as caller:
        await caller.begin()
        await caller.execute("SAVEPOINT earlier")
        with pytest.raises(ConfigurationError, match="savepoint"):
            await _within_durable(url, caller)
        assert not await taken(client.lock("stock"))
        assert await caller.execute("SELECT 1") == [(1,)]
        await within(url, caller)
        assert await taken(client.lock("stock"))


@main_ways
@staged
async def test_a_durable_lock_is_had_without_a_savepoint(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    async with opened(kind, place.server.url) as caller:
        for ending in ("commit", "rollback"):
            await _within_durable(url, caller)
            assert await taken(client.lock("stock"))
            await getattr(caller, ending)()
            assert not await taken(client.lock("stock"))
    if place.engine == "postgresql":
        assert place.server.execute("SELECT count(*) FROM pg_largeobject_metadata") == [(0,)]


@pytest.mark.parametrize("place", POSTGRES, ids=str)
@staged
async def test_on_postgres_savepoints_that_are_over_do_not_count(url: str, place: Place, table: str) -> None:
    async with opened(Psycopg, place.server.url) as caller:
        for ending in ("RELEASE", "ROLLBACK TO"):
            await caller.execute("SAVEPOINT over")
            await caller.execute(f"INSERT INTO {table} VALUES (1)")
            await caller.execute(f"{ending} SAVEPOINT over")
            if ending == "RELEASE":
                await _within_durable(url, caller)
        with pytest.raises(ConfigurationError, match="a savepoint"):  # it is still there after a rollback to it
            await _within_durable(url, caller)


async def _within_durable(url: str, caller: Application) -> None:
    await caller.begin()
    if caller.is_async:
        async with gripfast.connect_async(url) as client:
            await client.lock("stock").within(caller.given, 5, durable=True)
    else:
        await asyncio.to_thread(_blocking, url, caller.given)


def _blocking(url: str, connection: Any) -> None:
    with gripfast.connect(url) as client:
        client.lock("stock").within(connection, 5, durable=True)


@pytest.mark.parametrize("place", POSTGRES, ids=str)
@staged
async def test_on_postgres_force_release_ends_the_session_of_a_holder_behind_a_savepoint(
    url: str, client: gripfast.Client, place: Place
) -> None:
    with psycopg.connect(place.server.url) as caller:
        caller.execute("SAVEPOINT earlier")
        client.lock("stock").within(caller, 5)
        caller.execute("RELEASE SAVEPOINT earlier")
        assert client.force_release("stock")
        assert not await taken(client.lock("stock"))
        with pytest.raises(psycopg.OperationalError):
            caller.execute("SELECT 1")
