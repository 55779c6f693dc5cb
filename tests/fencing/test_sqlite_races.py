"""Two connections at once. Whoever the guard lets through holds the database's only write lock until its commit."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gripfast.errors import StaleToken
from gripfast.fencing import guard, schema

Connect = Callable[[], sqlite3.Connection]
JOURNALS = ["wal", "delete"]
BEGINS = ["BEGIN IMMEDIATE", "BEGIN"]


@pytest.fixture(params=JOURNALS)
def journal(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def connect(tmp_path: Path, journal: str) -> Iterator[Connect]:
    """Makes connections to one database that never wait for each other: busy is an answer, at once."""
    opened: list[sqlite3.Connection] = []

    def opener() -> sqlite3.Connection:
        opened.append(sqlite3.connect(tmp_path / "stock.db", timeout=0, isolation_level=None))
        return opened[-1]

    with closing(sqlite3.connect(tmp_path / "stock.db")) as first:
        first.execute(f"PRAGMA journal_mode = {journal}")
        first.executescript(schema("sqlite"))
    yield opener
    for connection in opened:
        connection.close()


@pytest.mark.parametrize("begin", BEGINS)
def test_the_older_writer_comes_too_late(connect: Connect, begin: str) -> None:
    older, newer = connect(), connect()
    newer.execute(begin)
    guard(newer, "stock", 2)
    newer.execute("COMMIT")
    older.execute(begin)
    with pytest.raises(StaleToken):
        guard(older, "stock", 1)


@pytest.mark.parametrize("begin", BEGINS)
def test_the_newer_writer_cannot_slip_between_guard_and_commit(connect: Connect, begin: str) -> None:
    older, newer = connect(), connect()
    older.execute(begin)
    guard(older, "stock", 1)
    newer.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        guard(newer, "stock", 2)
    newer.execute("ROLLBACK")
    older.execute("COMMIT")
    newer.execute("BEGIN")
    guard(newer, "stock", 2)


def test_a_refused_writer_holds_the_write_lock_so_that_what_refused_it_still_stands(connect: Connect) -> None:
    older, newer = connect(), connect()
    newer.execute("BEGIN")
    guard(newer, "stock", 2)
    newer.execute("COMMIT")
    older.execute("BEGIN")
    with pytest.raises(StaleToken):
        guard(older, "stock", 1)
    newer.execute("BEGIN")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        guard(newer, "stock", 3)


@pytest.mark.parametrize("journal", ["wal"], indirect=True)
def test_a_decision_on_an_old_read_does_not_get_through(connect: Connect) -> None:
    """Deferred transaction, read first: SQLITE_BUSY_SNAPSHOT, although the token itself is the largest of all."""
    reader, writer = connect(), connect()
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM gripfast_fence").fetchall()
    writer.execute("BEGIN IMMEDIATE")
    guard(writer, "stock", 1)
    writer.execute("COMMIT")
    with pytest.raises(sqlite3.OperationalError) as refusal:
        guard(reader, "stock", 2)
    assert refusal.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"
    reader.execute("ROLLBACK")
    reader.execute("BEGIN")
    guard(reader, "stock", 2)


@pytest.mark.parametrize("journal", ["delete"], indirect=True)
def test_without_a_wal_nobody_commits_past_a_reader(connect: Connect) -> None:
    reader, writer = connect(), connect()
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM gripfast_fence").fetchall()
    writer.execute("BEGIN IMMEDIATE")
    guard(writer, "stock", 1)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        writer.execute("COMMIT")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        guard(reader, "stock", 2)
