"""What `lock.within(connection)` refuses: snapshots that are older than the lock, and connections of no use."""

import asyncio
from contextlib import closing

import psycopg
import pymysql
import pytest

import gripfast
from api.within_stage import PLACES, SERVERS, Kind, Place, blocking_ways, every_way, full_name, main_ways, taken, within
from gripfast import ConfigurationError, LockTimeout
from support.both_colours import staged
from support.callers import Psycopg, PyMySQL, mysql_words, opened
from support.sql_servers import mariadb_server, postgres_server

pytestmark = pytest.mark.in_turn(2)

# -- snapshots -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES[:2], ids=str)
@pytest.mark.parametrize("level", [psycopg.IsolationLevel.REPEATABLE_READ, psycopg.IsolationLevel.SERIALIZABLE])
def test_above_read_committed_postgres_is_refused_before_anything_is_locked(
    url: str, client: gripfast.Client, place: Place, level: psycopg.IsolationLevel
) -> None:
    with psycopg.connect(place.server.url) as caller:
        caller.isolation_level = level
        with pytest.raises(ConfigurationError, match="READ COMMITTED"):
            client.lock("stock").within(caller)
        with client.lock("stock").acquire(wait=0):
            pass
        caller.rollback()
        caller.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        client.lock("stock").within(caller, 0)


mysql = pytest.mark.parametrize("place", PLACES[2:], ids=str)
BEGINNINGS = {
    "implicit": [],
    "begin": ["BEGIN"],
    "read": ["SELECT * FROM {table}"],
    "begin, read": ["BEGIN", "SELECT * FROM {table}"],
    "write": ["UPDATE {table} SET amount = 1"],
    "consistent snapshot": ["START TRANSACTION WITH CONSISTENT SNAPSHOT"],
}
OLD_SNAPSHOTS = {
    *(("REPEATABLE READ", beginning) for beginning in ("read", "begin, read", "consistent snapshot")),
    ("SERIALIZABLE", "consistent snapshot"),  # which nothing is read by there, but it is a snapshot
}


@mysql
@pytest.mark.parametrize("level", ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_mariadb_is_refused_if_its_snapshot_is_older_than_the_lock(
    url: str, client: gripfast.Client, place: Place, table: str, level: str, beginning: str
) -> None:
    with closing(pymysql.connect(**mysql_words(place.server.url), ssl_disabled=True)) as caller:
        with caller.cursor() as cursor:
            cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
            for statement in BEGINNINGS[beginning]:
                cursor.execute(statement.format(table=table))
        is_refused = (level, beginning) in OLD_SNAPSHOTS
        if is_refused:
            with pytest.raises(
                ConfigurationError, match=r"old data .* Roll back, and call within.. before you read anything"
            ):
                client.lock("stock").within(caller, 0)
            caller.rollback()
        client.lock("stock").within(caller, 0)
        caller.commit()


BEGIN = {
    "postgresql": "BEGIN ISOLATION LEVEL REPEATABLE READ",
    "mysql": "START TRANSACTION",
}


@pytest.mark.parametrize("place", [PLACES[0], PLACES[2]], ids=str)
def test_what_it_refuses_would_be_a_wrong_decision(url: str, client: gripfast.Client, place: Place, table: str) -> None:
    """A row lock by hand, got after another has written: what is read then is what was there before."""
    kind = Psycopg if place.engine == "postgresql" else PyMySQL
    lock = client.lock("stock")

    async def scene() -> None:
        async with opened(kind, place.server.url, autocommit=True) as caller:
            await caller.execute(BEGIN[place.engine])
            assert await caller.execute(f"SELECT amount FROM {table}") == [(0,)]
            with lock:
                place.server.execute(f"UPDATE {table} SET amount = 1")
            await caller.execute(f"SELECT 1 FROM gripfast_row WHERE name = '{full_name(url, 'stock')}' FOR UPDATE")
            assert await caller.execute(f"SELECT amount FROM {table}") == [(0,)]
            with pytest.raises(ConfigurationError, match="Roll back"):
                lock.within(caller.given, 5)
            await caller.rollback()
            await caller.execute("BEGIN")
            lock.within(caller.given, 5)
            assert await caller.execute(f"SELECT amount FROM {table}") == [(1,)]

    asyncio.run(scene())


# -- what it refuses -----------------------------------------------------------------------------------------------


@every_way
@staged
async def test_a_connection_that_commits_every_statement_is_refused(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    async with opened(kind, place.server.url, autocommit=True) as caller:
        with pytest.raises(ConfigurationError, match="begin a transaction first"):
            await within(url, caller)
        assert not await taken(client.lock("stock"))
        await caller.execute("BEGIN")
        await within(url, caller)
        assert await taken(client.lock("stock"))
        await caller.execute("ROLLBACK")


@main_ways
@staged
async def test_a_connection_of_the_other_colour_is_refused(
    kind: Kind, url: str, client: gripfast.Client, place: Place
) -> None:
    async with opened(kind, place.server.url) as caller:
        if kind.is_async:
            with pytest.raises(ConfigurationError, match="use a lock of connect_async"):
                client.lock("stock").within(caller.given)
        else:
            async with gripfast.connect_async(url) as other:
                with pytest.raises(ConfigurationError, match="would block the event loop"):
                    await other.lock("stock").within(caller.given)


@blocking_ways
@staged
async def test_a_connection_of_another_engine_is_refused(kind: Kind, client: gripfast.Client, place: Place) -> None:
    other = PyMySQL if place.engine == "postgresql" else Psycopg
    async with opened(other, SERVERS[other.engine]().url) as caller:
        with pytest.raises(ConfigurationError, match=f"in {place.engine}, but this connection is to {other.engine}"):
            client.lock("stock").within(caller.given)


@blocking_ways
@pytest.mark.parametrize("has", ["nothing", "tables", "the same row"])
@pytest.mark.parametrize("wait", [0, 5])
@staged
async def test_a_connection_of_another_database_is_refused(
    kind: Kind, url: str, client: gripfast.Client, place: Place, has: str, wait: float
) -> None:
    with place.server.fresh_database(mode=place.mode) as elsewhere, gripfast.connect(elsewhere) as other:
        if has != "nothing":
            other.lock("another" if has == "tables" else full_name(url, "stock")).acquire().release()
        # A row that is not there is skipped like one that is locked: who only tries is told that it is taken.
        expected = LockTimeout if (place.mode, has, wait) == ("row", "tables", 0) else ConfigurationError
        async with opened(kind, elsewhere.partition("?")[0]) as caller:
            with pytest.raises(expected):
                client.lock("stock").within(caller.given, wait)
            await caller.rollback()


def test_other_stores_and_modes_are_refused_with_what_to_use() -> None:
    expected = {
        "memory://": "only with a lock in a database: connect with postgresql",
        postgres_server().lock_space(): r"not for \?mode=lease: .* \?mode=row",
        mariadb_server().lock_space(): r"not for \?mode=lease: .* \?mode=row",
        mariadb_server().lock_space(mode="advisory"): r"not for \?mode=advisory: GET_LOCK .* \?mode=row",
    }
    for url, message in expected.items():
        with gripfast.connect(url) as client, pytest.raises(ConfigurationError, match=message):
            client.lock("stock").within(object())


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_something_else_than_a_connection_is_refused(client: gripfast.Client) -> None:
    with pytest.raises(ConfigurationError, match=r"psycopg, .* not a builtins\.object"):
        client.lock("stock").within(object())
    with pytest.raises(ConfigurationError, match="wait"):
        client.lock("stock").within(object(), wait=-1)
