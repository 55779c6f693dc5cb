"""`manage.py migrate` of several at the same time, as when all servers of a deploy start at once."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

from contrib.django.bazaar_processes import Bazaar, database_of, sqlite_in
from gripfast.stores.sql.session import WAIT_SLICE
from support.pgbouncer import pgbouncer
from support.redis_server import shared_server
from support.sql_process import DATABASE
from support.sql_servers import PostgresServer, mariadb_server, postgres_server

NOTHING = "No migrations to apply"


@pytest.fixture
def postgres() -> Iterator[str]:
    with postgres_server().fresh_database() as url:
        yield url


@pytest.fixture
def mariadb() -> Iterator[str]:
    with mariadb_server().fresh_database() as url:
        yield url


@pytest.fixture(params=["postgres", "sqlite"])
def bazaar(request: pytest.FixtureRequest, tmp_path: Path) -> Bazaar:
    if request.param == "sqlite":
        return Bazaar(sqlite_in(tmp_path))
    return Bazaar(database_of(request.getfixturevalue(request.param)))


def notes(bazaar: Bazaar) -> str:
    code = "from bazaar.models import Note; print('notes:', Note.objects.count())"
    no_imports = ["--no-imports"] if django.VERSION >= (5, 2) else []
    return re.findall(r"notes: (\d+)", bazaar.manage("shell", *no_imports, "-c", code))[0]


@pytest.mark.in_turn(2)
@pytest.mark.parametrize("bazaar", ["postgres", "mariadb", "sqlite"], indirect=True)
def test_of_two_one_migrates_and_the_other_finds_nothing_to_do(bazaar: Bazaar, tmp_path: Path) -> None:
    """Also with CREATE INDEX CONCURRENTLY, which waits until no statement of others is older than itself: if the second
    waited by a statement, the first would wait until that times out, after half a minute, and again."""
    gate = tmp_path / "gate"
    with bazaar.start("migrate", BAZAAR_GATE=str(gate)) as first:
        first.until_it_prints("in the middle")
        with bazaar.start("migrate", BAZAAR_GATE=str(gate)) as second:
            second.until_it_prints("Waiting for another migrate: held by pid")
            gate.touch()
            opened = time.monotonic()
            first.until_it_prints("bazaar.0003_index... OK")
            assert time.monotonic() - opened < WAIT_SLICE
            first.ended()
            assert NOTHING in second.ended()
    assert str(first.pid) in second.printed  # says whom it waited for
    assert notes(bazaar) == "1"


@pytest.mark.in_turn(2)
def test_without_the_lock_both_of_them_migrate(bazaar: Bazaar, tmp_path: Path) -> None:
    """What the test above would see."""
    bazaar.manage("migrate", "bazaar", "0001")
    gate = tmp_path / "gate"
    words = ("migrate", "bazaar", "--no-lock")
    with bazaar.start(*words, BAZAAR_GATE=str(gate)) as first, bazaar.start(*words, BAZAAR_GATE=str(gate)) as second:
        first.until_it_prints("in the middle")
        second.until_it_prints("in the middle")


@pytest.mark.in_turn(2)
def test_a_killed_one_leaves_the_rest_to_the_next_at_once(bazaar: Bazaar, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with bazaar.start("migrate", BAZAAR_GATE=str(gate)) as first:
        first.until_it_prints("in the middle")
        with bazaar.start("migrate") as second:
            second.until_it_prints("Waiting for another migrate")
            first.kill()
            printed = second.ended()
    assert "Applying bazaar.0002_note... OK" in printed
    assert "bazaar.0001_initial" not in printed  # that was done
    assert notes(bazaar) == "1"


@pytest.mark.in_turn(2)
def test_one_that_is_not_to_wait_says_who_migrates(bazaar: Bazaar, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with bazaar.start("migrate", BAZAAR_GATE=str(gate)) as first:
        first.until_it_prints("in the middle")
        printed = bazaar.manage("migrate", "--lock-wait", "0", expect=1)
        assert f"Another migrate runs: held by pid {first.pid} on " in printed
        assert "(manage.py migrate)" in printed
        assert "bazaar.0002_note" in bazaar.manage("migrate", "--plan")  # who only looks does not wait
        bazaar.manage("migrate", "--check", expect=1)
        gate.touch()
        first.ended()


def test_a_lock_that_is_lost_stops_it_before_the_next_migration(postgres: str, tmp_path: Path) -> None:
    """Its session is ended, as by a failover."""
    gate, server = tmp_path / "gate", postgres_server()
    with Bazaar(database_of(postgres)).start("migrate", BAZAAR_GATE=str(gate)) as first:
        first.until_it_prints("in the middle")
        name = postgres.rpartition("/")[2]
        holding = (
            "SELECT pid FROM pg_locks JOIN pg_database ON oid = database WHERE locktype = 'advisory' AND datname = %s"
        )
        for (session,) in server.execute(holding, name):
            server.kill_session(session)
        second = Bazaar(database_of(postgres)).start("migrate")
        with second:
            second.until_it_prints("Applying bazaar.0002_note")  # it has the lock by now
            gate.touch()
            printed = first.ended(expect=1)
    assert "lost (session)" in printed
    assert "no further migration was begun" in printed
    assert "Applying bazaar.0003_index" not in printed


@pytest.fixture
def pooled() -> Iterator[tuple[PostgresServer, str]]:
    with PostgresServer() as server, pgbouncer(server) as url:
        yield server, url


def test_a_proxy_that_pools_sessions_is_refused_loudly(pooled: tuple[PostgresServer, str]) -> None:
    server, url = pooled
    through = database_of(url, DISABLE_SERVER_SIDE_CURSORS=True)
    printed = Bazaar(through).manage("migrate", expect=1)
    assert "is reached through a proxy that pools connections, such as pgbouncer" in printed
    assert "Give GRIPFAST an entry 'migrate'" in printed
    assert server.execute("SELECT count(*) FROM pg_tables WHERE tablename = 'django_migrations'") == [(0,)]
    locks = {"default": {"URL": shared_server().url}, "migrate": {"DATABASE": "direct", "MODE": "advisory"}}
    direct = database_of(server.url_with(database=DATABASE))
    assert "0003_index... OK" in Bazaar(through, locks, {"direct": direct}).manage("migrate")


def test_the_lock_can_be_in_another_store(postgres: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    locks = {"default": {"URL": shared_server().url}, "migrate": {"URL": shared_server().url, "OPTIONS": {"ttl": 5}}}
    bazaar = Bazaar(database_of(postgres), locks)
    with bazaar.start("migrate", BAZAAR_GATE=str(gate)) as first:
        first.until_it_prints("in the middle")
        assert "django:migrate:fresh_" in bazaar.manage("locks", "--using", "migrate")
        gate.touch()
        first.ended()


@pytest.mark.in_turn(2)
def test_the_tables_go_and_come_again(bazaar: Bazaar) -> None:
    bazaar.manage("migrate")
    assert "gripfast.0001_initial... OK" in bazaar.manage("migrate", "gripfast", "zero")
    assert "gripfast.0001_initial... OK" in bazaar.manage("migrate")
    assert "No changes detected" in bazaar.manage("makemigrations", "--check", "--dry-run", "gripfast")
    assert "gripfast_fence" in bazaar.manage("sqlmigrate", "gripfast", "0001")
