"""The guard for sqlite3: one statement in the caller's own transaction."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gripfast.errors import ConfigurationError, StaleToken
from gripfast.fencing import guard, schema


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(schema("sqlite"))
        yield connection


def remembered(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(connection.execute("SELECT resource, token FROM gripfast_fence"))


def test_a_smaller_token_is_refused_and_told_what_was_seen(connection: sqlite3.Connection) -> None:
    guard(connection, "stock", 34)
    with pytest.raises(StaleToken) as refusal:
        guard(connection, "stock", 33)
    assert (refusal.value.resource, refusal.value.token, refusal.value.seen) == ("stock", 33, 34)
    assert remembered(connection) == {"stock": 34}


def test_equal_and_larger_tokens_pass(connection: sqlite3.Connection) -> None:
    for token in (34, 34, 35, 2**63 - 2, 2**63 - 2):
        guard(connection, "stock", token)
    assert remembered(connection) == {"stock": 2**63 - 2}


def test_resources_are_compared_byte_by_byte(connection: sqlite3.Connection) -> None:
    guard(connection, "Job", 34)
    guard(connection, "job", 1)
    guard(connection, "job ", 2)
    assert remembered(connection) == {"Job": 34, "job": 1, "job ": 2}


def test_a_rollback_forgets_the_token_with_the_write(connection: sqlite3.Connection) -> None:
    guard(connection, "stock", 34)
    connection.rollback()
    guard(connection, "stock", 33)


def test_a_commit_keeps_it(connection: sqlite3.Connection) -> None:
    guard(connection, "stock", 34)
    connection.commit()
    connection.rollback()
    with pytest.raises(StaleToken):
        guard(connection, "stock", 33)


def test_a_refusal_leaves_the_transaction_to_the_caller(connection: sqlite3.Connection) -> None:
    guard(connection, "stock", 34)
    guard(connection, "prices", 1)
    with pytest.raises(StaleToken):
        guard(connection, "stock", 33)
    assert connection.in_transaction
    connection.commit()
    assert remembered(connection) == {"stock": 34, "prices": 1}


def test_a_refusal_under_with_writes_nothing(connection: sqlite3.Connection) -> None:
    with connection:
        guard(connection, "stock", 34)
    with pytest.raises(StaleToken), connection:
        guard(connection, "prices", 1)
        guard(connection, "stock", 33)
    assert remembered(connection) == {"stock": 34}


def test_a_savepoint_that_is_rolled_back_forgets_too(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN")
    guard(connection, "stock", 1)
    connection.execute("SAVEPOINT inner_part")
    guard(connection, "stock", 34)
    connection.execute("ROLLBACK TO inner_part")
    guard(connection, "stock", 2)


def test_it_is_one_statement(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    statements: list[str] = []
    connection.set_trace_callback(statements.append)
    guard(connection, "stock", 34)
    assert [statement.split()[0] for statement in statements] == ["INSERT"]


def test_the_missing_table_is_answered_with_its_ddl_and_no_open_transaction() -> None:
    with closing(sqlite3.connect(":memory:")) as bare:
        with pytest.raises(ConfigurationError) as refusal:
            guard(bare, "stock", 1)
        assert schema("sqlite") in str(refusal.value)
        assert not bare.in_transaction


def test_the_schema_may_be_run_again(connection: sqlite3.Connection) -> None:
    guard(connection, "stock", 34)
    connection.executescript(schema("sqlite"))
    assert remembered(connection) == {"stock": 34}


def test_a_connection_that_commits_every_statement_is_refused() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute(schema("sqlite"))
        with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
            guard(connection, "stock", 1)
        connection.execute("BEGIN")
        guard(connection, "stock", 1)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sqlite3 has `autocommit` from Python 3.12 on")
@pytest.mark.parametrize("autocommit", [True, False])
def test_the_newer_autocommit_attribute_is_understood(autocommit: bool) -> None:
    options: dict[str, Any] = {"autocommit": autocommit}
    with closing(sqlite3.connect(":memory:", **options)) as connection:
        connection.execute(schema("sqlite"))
        if autocommit:
            with pytest.raises(ConfigurationError, match="BEGIN IMMEDIATE"):
                guard(connection, "stock", 1)
        else:
            guard(connection, "stock", 1)
            connection.rollback()
            assert remembered(connection) == {}


def test_the_callers_row_factory_does_not_matter(connection: sqlite3.Connection) -> None:
    connection.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    guard(connection, "stock", 34)
    with pytest.raises(StaleToken):
        guard(connection, "stock", 33)


def test_an_error_of_the_database_passes_as_it_is(connection: sqlite3.Connection, tmp_path: Path) -> None:
    path = tmp_path / "read_only.db"
    with closing(sqlite3.connect(path)) as writable:
        writable.execute(schema("sqlite"))
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as read_only:
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            guard(read_only, "stock", 1)
