"""The guard for PostgreSQL: what isolation levels and other transactions make of its one statement."""

import asyncio
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from psycopg import IsolationLevel

from fencing.sql_databases import fenced_database, new_resource, waiting
from gripfast.drivers import CallerConnection, Result, Value, recognised
from gripfast.errors import StaleToken
from gripfast.fencing import guard, schema
from gripfast.fencing.postgres import guard as postgres_guard
from support.waiting import until

LEVELS = [IsolationLevel.READ_COMMITTED, IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE]
WITH_A_SNAPSHOT = LEVELS[1:]

levels = pytest.mark.parametrize("level", LEVELS, ids=lambda level: level.name)
levels_with_a_snapshot = pytest.mark.parametrize("level", WITH_A_SNAPSHOT, ids=lambda level: level.name)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fenced_database("postgresql") as url:
        yield url


@pytest.fixture
def resource() -> str:
    return new_resource()


class Writer:
    """A transaction at a level; each test has an older and a newer one."""

    def __init__(self, url: str, level: IsolationLevel) -> None:
        self.connection = psycopg.connect(url)
        self.connection.isolation_level = level

    def reads(self) -> None:
        """Where the level has a snapshot, this makes it."""
        self.connection.execute("SELECT count(*) FROM gripfast_fence")


@pytest.fixture
def writers(url: str, level: IsolationLevel) -> Iterator[tuple[Writer, Writer]]:
    pair = Writer(url, level), Writer(url, level)
    yield pair
    for writer in pair:
        writer.connection.close()


def committed(url: str, resource: str, token: int) -> None:
    with psycopg.connect(url) as connection:
        guard(connection, resource, token)


@levels
def test_the_older_writer_comes_too_late(url: str, writers: tuple[Writer, Writer], resource: str) -> None:
    committed(url, resource, 2)
    with pytest.raises(StaleToken):
        guard(writers[0].connection, resource, 1)


@levels
@pytest.mark.parametrize("is_known", [True, False], ids=["known resource", "new resource"])
def test_an_old_snapshot_gets_no_older_token_through(
    url: str, writers: tuple[Writer, Writer], resource: str, level: IsolationLevel, is_known: bool
) -> None:
    if is_known:
        committed(url, resource, 1)
    older = writers[0]
    older.reads()
    committed(url, resource, 2)
    expected = StaleToken if level is IsolationLevel.READ_COMMITTED else psycopg.errors.SerializationFailure
    with pytest.raises(expected):
        guard(older.connection, resource, 1)
    older.connection.rollback()
    with pytest.raises(StaleToken):
        guard(older.connection, resource, 1)


@levels_with_a_snapshot
def test_a_decision_on_an_old_read_does_not_get_through_even_with_the_largest_token(
    url: str, writers: tuple[Writer, Writer], resource: str
) -> None:
    newest = writers[0]
    newest.reads()
    committed(url, resource, 2)
    with pytest.raises(psycopg.errors.SerializationFailure):
        guard(newest.connection, resource, 3)
    newest.connection.rollback()
    guard(newest.connection, resource, 3)


@levels
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_the_older_waits_for_the_newer_and_is_judged_by_how_it_ended(
    url: str, writers: tuple[Writer, Writer], resource: str, level: IsolationLevel, ending: str
) -> None:
    older, newer = writers
    guard(newer.connection, resource, 2)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(guard, older.connection, resource, 1)
        until(lambda: waiting("postgresql", url))
        getattr(newer.connection, ending)()
        if ending == "rollback":
            late.result(10)
        else:
            is_judged_by_now = level is IsolationLevel.READ_COMMITTED
            with pytest.raises(StaleToken if is_judged_by_now else psycopg.errors.SerializationFailure):
                late.result(10)


@levels
def test_the_newer_can_not_slip_between_guard_and_commit(
    url: str, writers: tuple[Writer, Writer], resource: str, level: IsolationLevel
) -> None:
    committed(url, resource, 0)
    older, newer = writers
    guard(older.connection, resource, 1)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(guard, newer.connection, resource, 2)
        until(lambda: waiting("postgresql", url))
        older.connection.commit()
        if level is IsolationLevel.READ_COMMITTED:
            waits.result(10)
        else:
            with pytest.raises(psycopg.errors.SerializationFailure):
                waits.result(10)


@levels
def test_writers_in_a_race_commit_in_the_order_of_their_tokens(url: str, resource: str, level: IsolationLevel) -> None:
    """Each of 8 threads brings tokens of its own; what was let in is written down under the guard's row lock."""
    log = f"log_{level.name}".lower()
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE TABLE {log} (id serial, token bigint)")
    begins = threading.Barrier(8)

    def writer(number: int) -> int:
        let_in = 0
        with closing(Writer(url, level).connection) as connection:
            begins.wait()
            for token in range(number, 160, 8):
                while True:
                    try:
                        guard(connection, resource, token)
                        connection.execute(f"INSERT INTO {log} (token) VALUES ({token})")
                        connection.commit()
                        let_in += 1
                        break
                    except StaleToken:
                        connection.rollback()
                        break
                    except psycopg.errors.SerializationFailure:
                        connection.rollback()
        return let_in

    with ThreadPoolExecutor(8) as threads:
        let_in = sum(threads.map(writer, range(8)))
    with psycopg.connect(url) as connection:
        tokens = [token for (token,) in connection.execute(f"SELECT token FROM {log} ORDER BY id")]
    assert tokens == sorted(tokens)
    assert len(tokens) == let_in
    assert tokens[-1] == 159


def test_it_is_one_statement(url: str, resource: str) -> None:
    """Whether the token is the first one, a larger one, the same again, or refused."""

    async def asked(connection: psycopg.AsyncConnection, token: int) -> int:
        statements = []
        caller = await recognised(connection)

        async def run(sql: str, values: Mapping[str, Value]) -> Result:
            statements.append(sql)
            return await caller.run(sql, values)

        try:
            await postgres_guard(CallerConnection(caller.engine, True, run), resource, token)
        except StaleToken:
            assert token == 1
        return len(statements)

    async def count() -> list[int]:
        async with await psycopg.AsyncConnection.connect(url) as connection:
            return [await asked(connection, token) for token in (2, 3, 3, 1)]

    assert asyncio.run(count()) == [1, 1, 1, 1]


def test_the_schema_may_be_run_again(url: str, resource: str) -> None:
    committed(url, resource, 34)
    with psycopg.connect(url) as connection:
        connection.execute(schema("postgresql"))
    with psycopg.connect(url) as connection, pytest.raises(StaleToken):
        guard(connection, resource, 33)


def test_the_callers_row_factory_does_not_matter(url: str, resource: str) -> None:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row, cursor_factory=psycopg.RawCursor) as connection:
        guard(connection, resource, 34)
        with pytest.raises(StaleToken):
            guard(connection, resource, 33)
