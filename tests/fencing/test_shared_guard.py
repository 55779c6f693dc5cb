"""Tokens of those who share a resource, on SQL databases: two numbers decide, and an older version writes nothing."""

import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fencing.sql_databases import connect, fenced_database, new_resource, shared_database, waiting
from fencing.test_properties import resources, tokens
from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import Gate, guard, schema
from support.both_colours import staged
from support.callers import KINDS, Application, opened
from support.waiting import until

pytestmark = pytest.mark.in_turn(2)

ENGINES = ("postgresql", "mysql")
OLDER = {
    "postgresql": """
        INSERT INTO gripfast_fence AS fence (resource, token) VALUES (%(resource)s, %(token)s)
        ON CONFLICT (resource) DO UPDATE SET token = GREATEST(fence.token, excluded.token) RETURNING fence.token""",
    "mysql": """
        INSERT INTO gripfast_fence (resource, token, writes) VALUES (%(resource)s, %(token)s, 1)
        ON DUPLICATE KEY UPDATE writes = writes + (token <= %(token)s), token = GREATEST(token, %(token)s)""",
}
"""The statement of a version that knows no shared tokens."""


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    with shared_database("postgresql") as url:
        yield url


@pytest.fixture(scope="module")
def mysql() -> Iterator[str]:
    with shared_database("mysql") as url:
        yield url


@pytest.fixture(params=KINDS, ids=lambda kind: kind.kind)
def kind(request: pytest.FixtureRequest) -> type[Application]:
    kind: type[Application] = request.param
    return kind


@pytest.fixture
def url(request: pytest.FixtureRequest, kind: type[Application]) -> str:
    return str(request.getfixturevalue(kind.engine))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def two(request: pytest.FixtureRequest, engine: str) -> Iterator[tuple[str, Any, Any]]:
    """A database with two connections."""
    url = request.getfixturevalue(engine)
    with closing(connect(engine, url)) as first, closing(connect(engine, url)) as second:
        yield url, first, second


@staged
async def test_of_those_who_share_none_is_late_because_of_another(kind: type[Application], url: str) -> None:
    resource = new_resource()
    async with opened(kind, url) as application:
        for token in (34, 36, 35, 36):
            await application.begin()
            await application.guard(resource, token, shared=True)
            await application.commit()


@staged
async def test_an_exclusive_token_must_not_be_smaller_than_any(kind: type[Application], url: str) -> None:
    resource = new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        await application.guard(resource, 34)
        await application.guard(resource, 36, shared=True)
        with pytest.raises(StaleToken) as refusal:
            await application.guard(resource, 35)
        assert (refusal.value.resource, refusal.value.token, refusal.value.seen) == (resource, 35, 36)
        await application.guard(resource, 36)


@staged
async def test_a_shared_token_must_not_be_smaller_than_the_last_exclusive_one(
    kind: type[Application], url: str
) -> None:
    resource = new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        await application.guard(resource, 36, shared=True)
        await application.guard(resource, 37)
        await application.guard(resource, 38, shared=True)
        await application.guard(resource, 37, shared=True)
        with pytest.raises(StaleToken) as refusal:
            await application.guard(resource, 36, shared=True)
        assert refusal.value.seen == 37


@staged
async def test_a_writer_that_has_read_before_makes_earlier_readers_late(kind: type[Application], url: str) -> None:
    """Its token is the same for both."""
    resource = new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        for token, shared in ((35, True), (37, True), (36, True), (37, False), (37, True)):
            await application.guard(resource, token, shared)
        with pytest.raises(StaleToken):
            await application.guard(resource, 36, shared=True)


@staged
async def test_a_rollback_forgets_a_shared_token(kind: type[Application], url: str) -> None:
    resource = new_resource()
    async with opened(kind, url) as application:
        await application.begin()
        await application.guard(resource, 34)
        await application.commit()
        await application.begin()
        await application.guard(resource, 36, shared=True)
        await application.rollback()
        await application.begin()
        await application.guard(resource, 35)
        await application.rollback()


def test_a_late_reader_waits_for_the_writer_and_is_refused(two: tuple[str, Any, Any], engine: str) -> None:
    """The order that goes wrong if the two are not compared under one lock."""
    url, writer, reader = two
    for earlier in ([], [(35, True)], [(34, True), (35, False)]):
        resource = new_resource()
        for token, shared in earlier:
            guard(writer, resource, token, shared=shared)
        writer.commit()
        guard(writer, resource, 37)
        with ThreadPoolExecutor(1) as thread:
            late = thread.submit(guard, reader, resource, 36, shared=True)
            until(lambda: waiting(engine, url) > 0)
            assert not late.done()
            writer.commit()
            with pytest.raises(StaleToken):
                late.result(10)
        reader.rollback()


def test_a_late_writer_waits_for_the_reader_and_is_refused(two: tuple[str, Any, Any], engine: str) -> None:
    url, writer, reader = two
    for earlier in ([], [(35, True)], [(35, False)]):
        resource = new_resource()
        for token, shared in earlier:
            guard(writer, resource, token, shared=shared)
        writer.commit()
        guard(reader, resource, 37, shared=True)
        with ThreadPoolExecutor(1) as thread:
            late = thread.submit(guard, writer, resource, 36)
            until(lambda: waiting(engine, url) > 0)
            reader.commit()
            with pytest.raises(StaleToken):
                late.result(10)
        writer.rollback()


def test_a_writer_waits_until_a_reader_that_was_let_in_has_written(two: tuple[str, Any, Any], engine: str) -> None:
    """Also if the reader has the token of the last writer, as one that was downgraded has: nothing changes then."""
    url, writer, reader = two
    resource = new_resource()
    guard(reader, resource, 36)
    reader.commit()
    guard(reader, resource, 36, shared=True)
    with ThreadPoolExecutor(1) as thread:
        later = thread.submit(guard, writer, resource, 37)
        until(lambda: later.done() or waiting(engine, url) > 0)
        assert not later.done()
        reader.commit()
        later.result(10)
    writer.rollback()


def older_guard(engine: str, connection: Any, resource: str, token: int) -> bool:
    """Whether a version that knows no shared tokens lets it in."""
    with connection.cursor() as cursor:
        cursor.execute(OLDER[engine], {"resource": resource, "token": token})
        cursor.execute("SELECT token FROM gripfast_fence WHERE resource = %s", [resource])
        return bool(cursor.fetchone()[0] <= token)


def test_an_older_version_and_this_one_refuse_each_other_in_a_rolling_deploy(
    two: tuple[str, Any, Any], engine: str
) -> None:
    _, older, newer = two
    resource = new_resource()
    assert older_guard(engine, older, resource, 34)
    older.commit()
    with pytest.raises(StaleToken):
        guard(newer, resource, 33, shared=True)
    guard(newer, resource, 36, shared=True)
    newer.commit()
    assert not older_guard(engine, older, resource, 35)
    assert not older_guard(engine, older, resource, 37)  # it can't know whether it is late
    older.rollback()
    guard(newer, resource, 38)
    newer.commit()
    assert older_guard(engine, older, resource, 39)
    older.commit()
    with pytest.raises(StaleToken):
        guard(newer, resource, 38, shared=True)
    newer.rollback()


def test_a_database_with_the_first_table_alone_is_told_what_to_create(engine: str) -> None:
    with fenced_database(engine) as url, closing(connect(engine, url)) as connection:
        guard(connection, "stock", 34)
        connection.commit()
        with pytest.raises(ConfigurationError, match="CREATE TABLE IF NOT EXISTS gripfast_fence_shared"):
            guard(connection, "stock", 35, shared=True)
        connection.rollback()
        guard(connection, "stock", 34)
        with connection.cursor() as cursor:
            cursor.execute(schema(engine, shared=True))
        guard(connection, "stock", 35, shared=True)


def test_numbers_that_somebody_deleted_let_nobody_in(two: tuple[str, Any, Any]) -> None:
    _, connection, _ = two
    resource = new_resource()
    guard(connection, resource, 34, shared=True)
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM gripfast_fence_shared")
    for shared in (True, False):
        with pytest.raises(StaleToken):
            guard(connection, resource, 40, shared=shared)
    connection.rollback()


# -- any sequence ------------------------------------------------------------------------------------------------------

steps = st.lists(st.tuples(resources, tokens, st.booleans()), max_size=30)
Step = tuple[str, int, bool]


def answers(check: Any, sequence: list[Step]) -> list[int | None]:
    """What each is told that it is smaller than; None if it is let in."""
    found: list[int | None] = []
    for resource, token, shared in sequence:
        try:
            check(resource, token, shared=shared)
        except StaleToken as refusal:
            found.append(refusal.seen)
        else:
            found.append(None)
    return found


@given(steps)
def test_sqlite_answers_as_the_gate_does(sequence: list[Step]) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(schema("sqlite"))
        connection.execute(schema("sqlite", shared=True))
        told = answers(lambda *write, **how: guard(connection, *write, **how), sequence)
        assert told == answers(Gate().guard, sequence)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(sequence=steps)
def test_a_server_answers_as_the_gate_does(two: tuple[str, Any, Any], sequence: list[Step]) -> None:
    _, connection, _ = two
    told = answers(lambda *write, **how: guard(connection, *write, **how), sequence)
    connection.rollback()
    assert told == answers(Gate().guard, sequence)
