"""Projects test their own code: `manage.py test`, whose databases come and go. `bazaar/tests.py` has what they test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from contrib.django.bazaar_processes import Bazaar, database_of, sqlite_in
from support.sql_servers import PostgresServer

LOCKS = {"default": {"DATABASE": "default"}, "rows": {"DATABASE": "default", "MODE": "row"}}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Where our user may create databases."""
    with PostgresServer() as server:
        server.execute("ALTER ROLE gripfast CREATEDB")
        yield server


def test_locks_in_memory_with_sqlite(tmp_path: Path) -> None:
    printed = Bazaar(sqlite_in(tmp_path), LOCKS).manage("test")
    assert "Ran 9 tests" in printed
    assert "OK (skipped=3)" in printed
    assert list(tmp_path.iterdir()) == []  # nothing of the tests is in a file


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("words", [(), ("--parallel", "2")], ids=["in one process", "in parallel"])
def test_locks_in_the_test_database_and_its_copies(server: PostgresServer, words: tuple[str, ...]) -> None:
    """A database that has connections can be neither dropped nor copied."""
    printed = Bazaar(database_of(server.url), LOCKS).manage("test", *words)
    assert "Ran 9 tests" in printed
    assert "\nOK\n" in printed
    databases = server.execute("SELECT datname FROM pg_database WHERE datname LIKE 'test_%'")
    assert databases == []
    assert server.execute("SELECT count(*) FROM pg_tables WHERE tablename LIKE 'gripfast_%'") == [(0,)]
