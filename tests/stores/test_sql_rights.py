"""Users of SQL servers who may do what they need, and nothing else: every mode works with exactly these rights.
What a user who may not do it is told."""

import asyncio
import contextlib
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gripfast
from gripfast import StoreUnavailable
from stores.sql_troubles import MODES, as_user, database_of, is_postgres, user
from support.both_colours import both_colours, outcome, staged
from support.sql_process import PASSWORD, SqlServer
from support.sql_servers import mariadb_server, postgres_server

pytestmark = pytest.mark.in_turn(2)

RIGHTS: dict[str, dict[str, dict[str, str]]] = {
    "PostgreSQL": {
        "lease": {"gripfast_lock": "SELECT, INSERT, UPDATE, DELETE"},
        "row": {"gripfast_row": "SELECT, INSERT, UPDATE, DELETE", "gripfast_grant": "SELECT, INSERT, UPDATE, DELETE"},
        "advisory": {"gripfast_grant": "SELECT, INSERT, UPDATE, DELETE"},
    },
    "MariaDB": {
        "lease": {"gripfast_lock": "SELECT, INSERT, UPDATE, DELETE"},
        "row": {
            "gripfast_row": "SELECT, INSERT, DELETE",
            "gripfast_grant": "SELECT, INSERT, UPDATE, DELETE",
            "gripfast_within": "SELECT, DELETE",
        },
        "advisory": {"gripfast_grant": "SELECT, INSERT, UPDATE, DELETE"},
    },
}
"""Of one who locks, on tables that somebody else has made. Each is needed, DELETE to forget names that are idle."""


@pytest.fixture(params=[postgres_server, mariadb_server], ids=["PostgreSQL", "MariaDB"])
def server(request: pytest.FixtureRequest) -> SqlServer:
    shared: SqlServer = request.param()
    return shared


def engine_of(server: SqlServer) -> str:
    return "PostgreSQL" if is_postgres(server) else "MariaDB"


@contextlib.contextmanager
def tables(server: SqlServer, mode: str) -> Iterator[str]:
    """The URL of a database in which its owner has made them."""
    with server.fresh_database(mode=mode) as url:
        with gripfast.connect(url) as client, client.lock("made"):
            pass
        yield url


def grant(server: SqlServer, url: str, name: str, rights: dict[str, str]) -> None:
    database = database_of(url)
    for table, which in rights.items():
        place = table if is_postgres(server) else f"{database}.{table}"
        whom = name if is_postgres(server) else f"{name}@'%'"
        server.execute(f"GRANT {which} ON {place} TO {whom}", database=database)


async def live(url: str) -> None:
    """Everything that can be asked for."""
    async with both_colours(url) as actors, both_colours(url) as others:
        for actor, other in zip(actors, others, strict=True):
            lease = await actor.acquire("job", ttl=1.5)
            assert (await actor.inspect("job")).token == lease.token
            assert [info.name for info in await actor.listing()] == ["job"]
            waiting = other.acquire("job", wait=20.0, ttl=1.5)
            await asyncio.wait([waiting], timeout=0.1)
            await actor.extend(lease)
            await actor.release(lease)
            lease = await waiting
            assert await actor.force_release("job")
            assert await other.hears_of_loss(lease, 5.0)
            if actor.client.capabilities.keeps:
                text = await actor.does(lease_to_detach(actor))
                await other.release(await other.calls(other.client.adopt, text))
                assert (await actor.inspect("job")).kept == "min_hold"
                assert await actor.force_release("job")


def lease_to_detach(actor: Any) -> Callable[[], Any]:
    """Acquired and detached in one go, in either colour."""
    lease = actor.client.lock("job", min_hold=60)

    async def detached() -> str:
        return str(await (await lease.acquire()).detach())

    return detached if actor.colour == "asyncio" else lambda: lease.acquire().detach()


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_the_rights_that_are_documented_are_enough(server: SqlServer, mode: str) -> None:
    with tables(server, mode) as url, user(server) as name:
        grant(server, url, name, RIGHTS[engine_of(server)][mode])
        await live(as_user(url, name))


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_a_user_without_rights_is_told_which_to_grant(server: SqlServer, mode: str) -> None:
    with tables(server, mode) as url, user(server) as name:
        if not is_postgres(server):
            grant(server, url, name, {"made_up": "SELECT, CREATE"})
        await all_refused(as_user(url, name), "GRANT", "SELECT, INSERT, UPDATE, DELETE")


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_tables_that_are_missing_are_made_by_who_may(server: SqlServer, mode: str) -> None:
    with server.fresh_database(mode=mode) as url:
        await live(url)


@pytest.mark.parametrize("mode", MODES)
@staged
async def test_one_who_may_not_make_the_tables_is_told_how_to_get_them(server: SqlServer, mode: str) -> None:
    with server.fresh_database(mode=mode) as url, user(server) as name:
        if not is_postgres(server):
            server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {database_of(url)}.* TO {name}@'%'")
        await all_refused(as_user(url, name), "gripfast schema")


async def all_refused(url: str, *words: str) -> None:
    """At once, and without the password."""
    async with both_colours(url, connect_patience=60.0) as actors:
        for actor in actors:
            for told in (
                await outcome(actor.try_acquire("job")),
                await outcome(actor.acquire("job", wait=30.0)),
                await outcome(actor.inspect("job")),
            ):
                assert_told(told, *words)


def assert_told(told: Any, *words: str) -> None:
    assert isinstance(told.error, StoreUnavailable), told
    assert told.seconds < 5.0
    assert PASSWORD not in "".join(traceback.format_exception(told.error)) + repr(told.error)
    for word in words:
        assert word in str(told.error), str(told.error)


@staged
async def test_a_wrong_password_is_told_without_the_password(server: SqlServer) -> None:
    url = server.lock_space().replace("%40ss", "%40sS")
    async with both_colours(url, connect_patience=60.0) as actors:
        for actor in actors:
            told = await outcome(actor.acquire("job", wait=30.0))
            assert_told(told, "password")
            assert PASSWORD.replace("ss", "sS") not in str(told.error)
