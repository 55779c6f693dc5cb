"""A connection is recognised by its class's full name, so that no driver is imported to be asked."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
import sqlalchemy
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from gripfast.drivers import CallerConnection
from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import async_guard, dialects, guard, schema
from gripfast.fencing.dialect import Dialect


class Traced(sqlite3.Connection):
    """What an application may derive for itself."""


def test_a_derived_connection_is_guarded_too() -> None:
    with closing(sqlite3.connect(":memory:", factory=Traced)) as connection:
        connection.execute(schema("sqlite"))
        guard(connection, "stock", 2)
        with pytest.raises(StaleToken):
            guard(connection, "stock", 1)


def test_a_connection_of_an_unknown_kind_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigurationError, match=r"no fencing guard for a builtins\.object; .* psycopg, .* sqlite3"):
        guard(object(), "stock", 1)


def test_an_unknown_engine_has_no_schema_and_the_known_ones_are_named() -> None:
    with pytest.raises(ConfigurationError, match="'oracle'; there is one for: postgresql, mysql, sqlite"):
        schema("oracle")


@pytest.mark.parametrize(("other", "name"), [("mariadb", "mysql"), ("postgres", "postgresql")])
def test_an_engine_with_two_names_has_one_schema(other: str, name: str) -> None:
    assert schema(other) == schema(name)


def test_another_engine_joins_by_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    async def paper_guard(caller: CallerConnection, resource: str, token: int) -> None:
        calls.append((caller.engine, resource, token))

    entry = Dialect(name="sqlite", ddl="draw a table", guard=paper_guard, begin="take a pencil")
    monkeypatch.setattr(dialects, "DIALECTS", (entry,))
    with closing(sqlite3.connect(":memory:")) as connection:
        guard(connection, "stock", 7)
    assert calls == [("sqlite", "stock", 7)]
    assert schema("sqlite") == "draw a table"


def test_a_connection_that_blocks_is_not_awaited() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(ConfigurationError, match=r"is not async: use gripfast\.fencing\.guard"):
            asyncio.run(async_guard(connection, "stock", 1))


def test_sqlite_is_guarded_through_sqlalchemy() -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection:
        connection.exec_driver_sql(schema("sqlite"))
        guard(connection, "stock", 34)
        connection.commit()
        with pytest.raises(StaleToken):
            guard(connection, "stock", 33)
        connection.rollback()
        guard(connection, "stock", 35)
        connection.rollback()
    with Session(engine) as session, session.begin():
        guard(session, "stock", 34)
    scoped = scoped_session(sessionmaker(engine))
    with pytest.raises(StaleToken):
        guard(scoped, "stock", 33)
    scoped.remove()
    engine.dispose()


def test_sqlite_that_commits_every_statement_is_refused_through_sqlalchemy_too() -> None:
    engine = sqlalchemy.create_engine("sqlite://", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
        guard(connection, "stock", 1)
    engine.dispose()


def test_an_engine_without_a_guard_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialects, "DIALECTS", dialects.DIALECTS[:2])
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(ConfigurationError, match="for sqlite; there is one for: postgresql, mysql"):
            guard(connection, "stock", 1)
