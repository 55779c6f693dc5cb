"""The guard for MariaDB and MySQL: what isolation levels and other transactions make of its one statement."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pymysql
import pytest
from pymysql.constants import CLIENT

from fencing.sql_databases import connect, fenced_database, new_resource, waiting
from gripfast.drivers import code_of
from gripfast.errors import StaleToken
from gripfast.fencing import guard, schema
from support.callers import mysql_words
from support.waiting import until

LEVELS = ["READ UNCOMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"]
levels = pytest.mark.parametrize("level", LEVELS)

DEADLOCK = "1213"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with fenced_database("mysql") as url:
        yield url


@pytest.fixture
def resource() -> str:
    return new_resource()


def writer(url: str, level: str, **options: Any) -> "pymysql.Connection":
    connection = pymysql.connect(**mysql_words(url), ssl_disabled=True, **options)
    with connection.cursor() as cursor:
        cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
    return connection


def run(connection: "pymysql.Connection", sql: str) -> tuple[tuple[Any, ...], ...]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


@pytest.fixture
def writers(url: str, level: str) -> Iterator[tuple["pymysql.Connection", "pymysql.Connection"]]:
    with closing(writer(url, level)) as older, closing(writer(url, level)) as newer:
        yield older, newer


Pair = tuple["pymysql.Connection", "pymysql.Connection"]


def committed(url: str, resource: str, token: int) -> None:
    with closing(connect("mysql", url)) as connection:
        guard(connection, resource, token)
        connection.commit()


@levels
def test_the_older_writer_comes_too_late(url: str, writers: Pair, resource: str) -> None:
    committed(url, resource, 2)
    with pytest.raises(StaleToken):
        guard(writers[0], resource, 1)


@levels
@pytest.mark.parametrize("is_known", [True, False], ids=["known resource", "new resource"])
def test_an_old_snapshot_gets_no_older_token_through(url: str, writers: Pair, resource: str, is_known: bool) -> None:
    if is_known:
        committed(url, resource, 1)
    older = writers[0]
    run(older, "SELECT 1 FROM gripfast_fence WHERE resource = 'another'")
    committed(url, resource, 2)
    with pytest.raises(StaleToken) as refusal:
        guard(older, resource, 1)
    assert refusal.value.seen == 2


@levels
@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_the_older_waits_for_the_newer_and_is_judged_by_how_it_ended(
    url: str, writers: Pair, resource: str, ending: str
) -> None:
    older, newer = writers
    guard(newer, resource, 2)
    with ThreadPoolExecutor(1) as threads:
        late = threads.submit(guard, older, resource, 1)
        until(lambda: waiting("mysql", url))
        getattr(newer, ending)()
        if ending == "rollback":
            late.result(10)
        else:
            with pytest.raises(StaleToken):
                late.result(10)


@levels
def test_the_newer_can_not_slip_between_guard_and_commit(url: str, writers: Pair, resource: str) -> None:
    committed(url, resource, 0)
    older, newer = writers
    guard(older, resource, 1)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(guard, newer, resource, 2)
        until(lambda: waiting("mysql", url))
        older.commit()
        waits.result(10)


@levels
def test_a_refused_writer_keeps_the_row_so_that_what_refused_it_still_stands(
    url: str, writers: Pair, resource: str
) -> None:
    committed(url, resource, 2)
    older, newer = writers
    with pytest.raises(StaleToken):
        guard(older, resource, 1)
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(guard, newer, resource, 3)
        until(lambda: waiting("mysql", url))
        older.rollback()
        waits.result(10)


@levels
def test_writers_in_a_race_commit_in_the_order_of_their_tokens(url: str, resource: str, level: str) -> None:
    """Each of 8 threads brings tokens of its own; what was let in is written down under the guard's row lock."""
    log = f"log_{level.replace(' ', '_')}".lower()
    with closing(connect("mysql", url)) as connection:
        run(connection, f"CREATE TABLE {log} (id BIGINT AUTO_INCREMENT PRIMARY KEY, token BIGINT)")
    begins = threading.Barrier(8)

    def write(number: int) -> int:
        let_in = 0
        with closing(writer(url, level)) as connection:
            begins.wait()
            for token in range(number, 160, 8):
                while True:
                    try:
                        guard(connection, resource, token)
                        run(connection, f"INSERT INTO {log} (token) VALUES ({token})")
                        connection.commit()
                        let_in += 1
                        break
                    except StaleToken:
                        connection.rollback()
                        break
                    except pymysql.err.OperationalError as error:
                        if code_of(error) != DEADLOCK:
                            raise
                        connection.rollback()
        return let_in

    with ThreadPoolExecutor(8) as threads:
        let_in = sum(threads.map(write, range(8)))
    with closing(connect("mysql", url)) as connection:
        tokens = [token for (token,) in run(connection, f"SELECT token FROM {log} ORDER BY id")]
    assert tokens == sorted(tokens)
    assert len(tokens) == let_in
    assert tokens[-1] == 159


def asked(connection: "pymysql.Connection") -> int:
    """How many statements this session has sent, this one not counted."""
    ((_, count),) = run(connection, "SHOW SESSION STATUS LIKE 'Questions'")
    return int(count) - 1


@pytest.mark.parametrize("flags", [0, CLIENT.FOUND_ROWS], ids=["changed", "found"])
def test_it_is_one_statement_unless_there_is_something_to_look_at(url: str, resource: str, flags: int) -> None:
    """A second one reads what was seen: of a row that may be new, and of a refusal."""
    counts = []
    with closing(writer(url, "REPEATABLE READ", client_flag=flags)) as connection:
        for token in (2, 3, 3, 1):
            before = asked(connection)
            try:
                guard(connection, resource, token)
            except StaleToken:
                assert token == 1
            counts.append(asked(connection) - before - 1)
    assert counts == [2, 1, 1, 2]


def test_the_schema_may_be_run_again(url: str, resource: str) -> None:
    committed(url, resource, 34)
    with closing(connect("mysql", url)) as connection:
        run(connection, schema("mariadb"))
        with pytest.raises(StaleToken):
            guard(connection, resource, 33)


@pytest.mark.parametrize("charset", ["utf8mb4", "latin1", "gbk"])
def test_names_are_the_same_in_every_character_set(url: str, charset: str) -> None:
    with closing(connect("mysql", url)) as first, closing(writer(url, LEVELS[0], charset=charset)) as second:
        resource = f"縗 {charset}"
        guard(first, resource, 2)
        first.commit()
        with pytest.raises(StaleToken):
            guard(second, resource, 1)


def test_the_callers_cursor_class_and_sql_mode_do_not_matter(url: str, resource: str) -> None:
    options = {"cursorclass": pymysql.cursors.DictCursor, "sql_mode": "ANSI,NO_BACKSLASH_ESCAPES"}
    with closing(writer(url, LEVELS[2], **options)) as connection:
        guard(connection, resource, 34)
        guard(connection, resource, 35)
        with pytest.raises(StaleToken):
            guard(connection, resource, 33)
