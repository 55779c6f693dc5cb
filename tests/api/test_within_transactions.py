"""`lock.within(connection)` beside what else a transaction does: several locks, time-outs of its own, pipelines, being
prepared; and beside those who only look."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg
import pymysql
import pytest

import gripfast
from api.within_stage import PLACES, SERVERS, Kind, Place, full_name, taken, within
from gripfast import ConfigurationError, LockTimeout, StoreUnavailable
from support.both_colours import staged
from support.callers import AioMySQL, AlchemyPyMySQLSession, Psycopg, PyMySQL, mysql_words, opened
from support.sql_servers import MariaServer, PostgresServer

pytestmark = pytest.mark.in_turn(2)

postgres = pytest.mark.parametrize("place", PLACES[:2], ids=str)
mysql = pytest.mark.parametrize("place", PLACES[2:], ids=str)

# -- several locks ---------------------------------------------------------------------------------------------------

BEGINNINGS = {"nothing": [], "begin": ["BEGIN"], "write": ["BEGIN", "UPDATE {table} SET amount = 1"]}


async def all_within(url: str, given: Any, is_async: bool, *names: str) -> None:
    if is_async:
        async with gripfast.connect_async(url) as client:
            for name in names:
                await client.lock(name).within(given, 5)
    else:
        with gripfast.connect(url) as client:
            for name in names:
                client.lock(name).within(given, 5)


@mysql
@pytest.mark.parametrize("kind", [PyMySQL, AioMySQL, AlchemyPyMySQLSession], ids=lambda kind: kind.kind)
@pytest.mark.parametrize("beginning", BEGINNINGS)
@staged
async def test_mariadb_gives_several_locks_in_a_transaction_that_has_read_nothing(
    kind: Kind, url: str, client: gripfast.Client, place: Place, table: str, beginning: str
) -> None:
    async with opened(kind, place.server.url) as caller:
        for statement in BEGINNINGS[beginning]:
            await caller.execute(statement.format(table=table))
        await all_within(url, caller.given, kind.is_async, "one", "two", "three")
        assert [await taken(client.lock(name)) for name in ("one", "two", "three")] == [True] * 3
        await caller.commit()


@mysql
@staged
async def test_a_read_between_two_locks_is_a_snapshot_that_is_older_than_the_second(
    url: str, client: gripfast.Client, place: Place, table: str
) -> None:
    async with opened(PyMySQL, place.server.url) as caller:
        await caller.execute(f"UPDATE {table} SET amount = 5")
        await all_within(url, caller.given, False, "one")
        await caller.execute(f"SELECT * FROM {table}")
        await all_within(url, caller.given, False, "one")  # which was had before
        with pytest.raises(ConfigurationError, match=r"snapshot before .* The server has rolled it back. Roll back"):
            await all_within(url, caller.given, False, "two")
        assert not await taken(client.lock("one"))
        assert place.server.execute(f"SELECT amount FROM {table}") == [(0,)]
        assert await caller.execute("SELECT @@innodb_snapshot_isolation") == [(0,)]


@mysql
def test_transactions_that_are_rolled_back_leave_nothing_more(url: str, client: gripfast.Client, place: Place) -> None:
    def rows() -> list[int]:
        asked = "SELECT count(*) FROM gripfast_{} WHERE name LIKE %s"
        counts = [place.server.execute(asked.format(each), full_name(url, "%")) for each in ("row", "grant", "within")]
        return [count for ((count,),) in counts]

    with closing(pymysql.connect(**mysql_words(place.server.url), ssl_disabled=True)) as caller:
        for _ in range(5):
            caller.begin()
            client.lock("stock").within(caller, 5)
            caller.rollback()
    assert rows() == [1, 1, 1]


def test_where_statements_are_replicated_it_waits_or_says_why_not() -> None:
    with (
        MariaServer("log-bin=log", "binlog-format=STATEMENT", "server-id=1") as server,
        gripfast.connect(server.url_with(mode="row")) as client,
        closing(pymysql.connect(**mysql_words(server.url), ssl_disabled=True)) as caller,
    ):
        with client.lock("stock").acquire(), pytest.raises(LockTimeout):
            client.lock("stock").within(caller, 0.1)
        client.lock("stock").within(caller, 5)
        caller.rollback()
        with caller.cursor() as cursor:
            cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        with pytest.raises(ConfigurationError, match="binlog_format=STATEMENT"):
            client.lock("stock").within(caller, 5)


# -- those who look --------------------------------------------------------------------------------------------------


@contextmanager
def looked_at(url: str, count: int) -> Iterator[list[bool]]:
    """By so many, all the time; whether each saw it held."""
    ends, seen = threading.Event(), list[bool]()

    def look() -> None:
        with gripfast.connect(url) as client:
            while not ends.is_set():
                seen.append(client.inspect("stock") is not None)

    threads = [threading.Thread(target=look) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("place", [PLACES[0], PLACES[2]], ids=str)
def test_looking_neither_takes_a_lock_that_is_free_nor_sees_it_held(
    url: str, client: gripfast.Client, place: Place
) -> None:
    kind: Any = psycopg.connect if place.engine == "postgresql" else pymysql.connect
    words = {"conninfo": place.server.url} if place.engine == "postgresql" else mysql_words(place.server.url)
    with closing(kind(**words)) as caller:
        client.lock("stock").within(caller, 5)
        caller.commit()
        with looked_at(url, 3) as seen:
            assert not any(client.force_release("stock") for _ in range(50))
        assert not any(seen)
        with looked_at(url, 3):
            for _ in range(50):
                client.lock("stock").within(caller, 0)
                caller.commit()
                client.lock("stock").acquire(wait=0).release()


@contextmanager
def prepared(server: PostgresServer, url: str) -> Iterator[gripfast.Client]:
    """A client, beside a transaction that holds the lock and is of no session any more; and its session lives."""
    with gripfast.connect(url) as client, psycopg.connect(server.url) as caller:
        caller.execute("SAVEPOINT earlier")
        client.lock("stock").within(caller, 5)
        caller.execute("RELEASE SAVEPOINT earlier")
        caller.execute("PREPARE TRANSACTION 'it''s kept'")
        yield client
        caller.rollback()
        assert caller.execute("SELECT 1").fetchone() == (1,)


def test_a_prepared_transaction_is_told_and_its_old_session_left_alone() -> None:
    with PostgresServer("max_prepared_transactions=5") as server:
        for mode in ("row", "advisory"):
            with prepared(server, server.url_with(mode=mode)) as client:
                assert client.inspect("stock") is not None
                with pytest.raises(StoreUnavailable, match="ROLLBACK PREPARED 'it''s kept'"):
                    client.force_release("stock")
                assert client.lock("stock").try_acquire() is None
                server.execute("ROLLBACK PREPARED 'it''s kept'")
                assert client.inspect("stock") is None
                client.lock("stock").acquire(wait=5).release()


# -- the caller's own time-outs --------------------------------------------------------------------------------------

LIMIT = {"postgresql": "SET statement_timeout TO '100ms'", "mysql": "SET SESSION max_statement_time = 0.1"}
LIMITED = {"postgresql": "SHOW statement_timeout", "mysql": "SELECT CONCAT(@@max_statement_time * 1000 DIV 1, 'ms')"}


@pytest.mark.parametrize("place", PLACES, ids=str)
@staged
async def test_a_limit_for_statements_that_is_shorter_than_the_wait_does_not_end_it(
    url: str, client: gripfast.Client, place: Place, table: str
) -> None:
    kind = next(each for each in (Psycopg, PyMySQL) if each.engine == place.engine)
    async with opened(kind, place.server.url) as caller:
        await caller.execute(LIMIT[place.engine])
        await caller.commit()
        await caller.execute(f"UPDATE {table} SET amount = 3")
        lease = client.lock("stock").acquire()
        with pytest.raises(LockTimeout) as refusal:
            await within(url, caller, wait=0.4)
        assert refusal.value.waited >= 0.4
        waiter = asyncio.create_task(within(url, caller, wait=30))
        _, waits = await asyncio.wait([waiter], timeout=0.4)
        assert waits
        lease.release()
        await waiter
        assert await caller.execute(LIMITED[place.engine]) == [("100ms",)]
        await caller.commit()
        assert place.server.execute(f"SELECT amount FROM {table}") == [(3,)]


# -- pipelines -------------------------------------------------------------------------------------------------------


@postgres
@pytest.mark.parametrize("autocommit", [False, True])
def test_in_a_pipeline_it_is_as_elsewhere(
    url: str, client: gripfast.Client, place: Place, table: str, autocommit: bool
) -> None:
    with psycopg.connect(place.server.url, autocommit=autocommit) as caller:
        with caller.pipeline(), caller.transaction():
            caller.execute(f"UPDATE {table} SET amount = 1")
            held = client.lock("stock").within(caller, 5)
            info = client.inspect("stock")
            assert info is not None
            assert info.token == held.token
        with client.lock("stock").acquire(wait=5), caller.pipeline(), caller.transaction():
            with pytest.raises(LockTimeout):
                client.lock("stock").within(caller, 0.1)
            caller.execute(f"UPDATE {table} SET amount = amount + 1")
        if autocommit:
            with caller.pipeline(), pytest.raises(ConfigurationError, match="begin a transaction first"):
                client.lock("stock").within(caller, 5)
    assert place.server.execute(f"SELECT amount FROM {table}") == [(2,)]


@postgres
@staged
async def test_in_an_async_pipeline_it_is_as_elsewhere(url: str, client: gripfast.Client, place: Place) -> None:
    async with await psycopg.AsyncConnection.connect(place.server.url) as caller:
        async with caller.pipeline(), gripfast.connect_async(url) as own:
            await own.lock("stock").within(caller, 5)
            assert await taken(client.lock("stock"))
        await caller.commit()
        assert not await taken(client.lock("stock"))


def test_what_it_takes_it_tells() -> None:
    with gripfast.connect(SERVERS["postgresql"]().lock_space(mode="row")) as client:
        with pytest.raises(ConfigurationError, match="SQLAlchemy and Django, not") as refusal:
            client.lock("stock").within(object())
        assert "sqlite" not in str(refusal.value)
