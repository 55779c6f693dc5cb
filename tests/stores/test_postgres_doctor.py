"""`gripfast doctor` at real PostgreSQL servers that are set up wrongly, each in one way, and at a sound one."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

import gripfast
from gripfast.stores.postgres import doctor
from gripfast.stores.postgres.doctor import Facts, judge
from stores.doctor_stage import found, problems, report_on
from stores.sql_troubles import as_user, user
from support.pgbouncer import pgbouncer
from support.server_process import as_user as as_system_user
from support.sql_process import DATABASE, USER
from support.sql_servers import ADMIN, PostgresServer, server_program
from support.waiting import until


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """As it would be in production."""
    with PostgresServer("max_connections=110", durable=True) as server:
        with gripfast.connect(server.url) as client:
            client.lock("made").acquire().release()
        yield server


@contextlib.contextmanager
def with_settings(server: PostgresServer, **settings: str) -> Iterator[None]:
    """For new sessions."""
    for name, value in settings.items():
        server.execute(f"ALTER SYSTEM SET {name} = {value}")
    server.execute("SELECT pg_reload_conf()")
    until(lambda: all(_shown(server, name) == value.strip("'") for name, value in settings.items()))
    try:
        yield
    finally:
        server.execute("ALTER SYSTEM RESET ALL")
        server.execute("SELECT pg_reload_conf()")


def _shown(server: PostgresServer, name: str) -> str:
    [(value,)] = server.execute(f"SHOW {name}")
    return str(value)


@pytest.mark.parametrize("mode", ["lease", "row", "advisory"])
def test_a_sound_server_has_no_problem(server: PostgresServer, mode: str) -> None:
    report = report_on(server.lock_space(mode=mode))
    assert [each for each in report.findings if each.kind == "problem"] == []
    assert report.usable
    assert report.summary.startswith("PostgreSQL 1")
    assert mode in report.summary
    if mode == "lease":
        assert report.findings == ()


@pytest.mark.parametrize(
    "setting, value, mode, name, kind",
    [
        ("fsync", "off", "lease", "postgres-fsync", "problem"),
        ("full_page_writes", "off", "lease", "postgres-fsync", "problem"),
        ("synchronous_commit", "off", "lease", "postgres-synchronous-commit", "problem"),
        ("autovacuum", "off", "lease", "postgres-autovacuum", "advice"),
        ("idle_in_transaction_session_timeout", "'5s'", "row", "postgres-idle-transactions", "advice"),
        ("default_transaction_isolation", "'repeatable read'", "row", "postgres-isolation", "advice"),
    ],
)
def test_a_wrong_setting_is_found(
    server: PostgresServer, setting: str, value: str, mode: str, name: str, kind: str
) -> None:
    with with_settings(server, **{setting: value}):
        assert found(server.lock_space(mode=mode))[name].kind == kind


def test_a_wrong_setting_of_the_role_alone_is_found(server: PostgresServer) -> None:
    server.execute(f"ALTER ROLE {USER} SET synchronous_commit = off")
    try:
        assert "postgres-synchronous-commit" in found(server.lock_space())
    finally:
        server.execute(f"ALTER ROLE {USER} RESET ALL")


def test_a_transaction_that_may_be_idle_for_ever_is_advice_where_it_matters(server: PostgresServer) -> None:
    assert "postgres-no-idle-timeout" in found(server.lock_space(mode="row"))
    assert "postgres-no-idle-timeout" not in found(server.lock_space())


def test_a_pooling_proxy_is_found(server: PostgresServer) -> None:
    with pgbouncer(server) as url:
        assert found(url)["postgres-pooled"].kind == "advice"
        refused = found(f"{url}?mode=advisory")["unusable"]
    assert "through a proxy that pools connections" in refused.what
    assert "mode=lease" in refused.todo


def test_a_standby_is_found() -> None:
    with PostgresServer() as standby:
        with gripfast.connect(standby.url) as client:
            client.lock("made").acquire().release()
        standby.make_read_only()
        findings = found(standby.url)
    assert findings["postgres-standby"].kind == "problem"
    assert "takes no writes" in findings["unusable"].what
    assert findings["postgres-fsync"]  # of the servers of tests


def test_a_standby_that_no_commit_waits_for_is_found(server: PostgresServer) -> None:
    """pg_receivewal takes part in replication as a standby does."""
    with (server.folder / "received").open("w") as log:
        (server.folder / "wal").mkdir(mode=0o777)
        (server.folder / "wal").chmod(0o777)
        line = [server_program("pg_receivewal"), "-D", str(server.folder / "wal"), "-h", str(server.folder)]
        follower = subprocess.Popen(
            [*line, "-p", str(server.port), "-U", ADMIN], stdout=log, stderr=log, **as_system_user("postgres")
        )
    try:
        until(lambda: server.execute("SELECT count(*) FROM pg_stat_replication") == [(1,)])
        finding = found(server.lock_space())["postgres-asynchronous"]
    finally:
        follower.terminate()
        follower.wait()
    assert finding.what.startswith("1 standby is connected, and no commit waits for it")


def test_connections_that_are_nearly_used_up_are_found(server: PostgresServer) -> None:
    with ExitStack() as open_ones:
        for _ in range(86):
            open_ones.enter_context(server._connect(DATABASE))
        findings = found(server.lock_space(mode="advisory"))
    assert "of 107 connections are used" in findings["postgres-connections"].what
    assert "may use 100 connections" in findings["postgres-sessions"].what


def test_a_database_with_another_encoding_is_found(server: PostgresServer) -> None:
    server.execute(
        f"CREATE DATABASE narrow OWNER {USER} ENCODING 'LATIN1' LOCALE 'C' LOCALE_PROVIDER 'libc' TEMPLATE template0"
    )
    try:
        assert "LATIN1" in found(server.url_with(database="narrow"))["postgres-encoding"].what
    finally:
        server.execute("DROP DATABASE narrow WITH (FORCE)", database=ADMIN)


def test_tables_in_two_schemas_are_found(server: PostgresServer) -> None:
    server.execute("CREATE SCHEMA other; CREATE TABLE other.gripfast_lock (name text)")
    try:
        finding = found(server.lock_space())["postgres-two-schemas"]
    finally:
        server.execute("DROP SCHEMA other CASCADE")
    assert (finding.kind, "other and public" in finding.what) == ("problem", True)


def test_a_table_full_of_dead_rows_is_found(server: PostgresServer) -> None:
    with server.fresh_database() as url:
        database = url.rpartition("/")[2]
        problems(url)  # makes the tables
        server.execute("ALTER TABLE gripfast_lock SET (autovacuum_enabled = off)", database=database)
        columns = "(name, token, expires_us, ttl_us, since_us, card, waited_until_us, checked_us)"
        rows = "SELECT 'n' || i, i, 0, 0, 0, '', 0, 0 FROM generate_series(1, 20000) i"
        server.execute(f"INSERT INTO gripfast_lock {columns} {rows}", database=database)
        server.execute("DELETE FROM gripfast_lock WHERE name LIKE 'n%'", database=database)
        until(lambda: "postgres-dead-rows" in found(url), within=20)
        assert found(url)["postgres-autovacuum"].what == "autovacuum is off for gripfast_lock"


def test_a_long_transaction_is_found(server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LONG_TRANSACTION", 0.0)  # an hour is too long for a test
    with server._connect(DATABASE) as session:
        session.execute("BEGIN")
        session.execute("SELECT 1")
        # Whose transaction it is, an ordinary user is not told: an administrator asks.
        finding = found(f"postgresql:///{DATABASE}?host={server.folder}&port={server.port}&user={ADMIN}")
        assert f"pid = {session.info.backend_pid}" in finding["postgres-long-transaction"].todo
        session.execute("ROLLBACK")


def test_a_user_without_rights_is_found(server: PostgresServer) -> None:
    with user(server) as name:
        finding = found(as_user(server.url, name))["unusable"]
    assert "does not let this user do that" in finding.what
    assert finding.todo.startswith("GRANT SELECT, INSERT, UPDATE, DELETE ON gripfast_lock")


def test_rights_to_semaphores_that_are_missing_are_advice(server: PostgresServer) -> None:
    with user(server) as name:
        server.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON gripfast_lock TO {name}")
        report = report_on(as_user(server.url, name))
        server.execute(f"DROP OWNED BY {name}")
    assert report.usable
    assert {each.name for each in report.findings} == {"limited"}


# Judging, by plain values ---------------------------------------------------------------------------------------------

NOT_WAITED_FOR = {"synchronous_standby_names": "a", "synchronous_commit": "local"}


@pytest.mark.parametrize(
    "changed, name",
    [
        ({"settings": {"server_version_num": "120005", "server_version": "12.5"}}, "postgres-old"),
        ({"queue": 0.7}, "postgres-notify-queue"),
        ({"encrypted": False, "host": "db.example"}, "postgres-plain-text"),
        (
            {"standbys": 2, "settings": {"synchronous_standby_names": "a", "synchronous_commit": "local"}},
            "postgres-asynchronous",
        ),
        ({"tables": [doctor.PostgresTable("public", "gripfast_lock", 2_000_000, 0, True)]}, "sql-many-names"),
    ],
)
def test_facts_are_judged(changed: dict[str, object], name: str) -> None:
    facts = Facts("localhost", "lease", 100)
    assert [*judge(facts)] == []
    assert [each.name for each in judge(facts._replace(**changed))] == [name]  # type: ignore[arg-type]


def test_advisory_mode_needs_a_newer_server() -> None:
    settings = {"server_version_num": "130011", "server_version": "13.11"}
    assert [*judge(Facts("localhost", "lease", 100, settings=settings))] == []
    assert [each.name for each in judge(Facts("localhost", "advisory", 0, settings=settings))] == ["postgres-old"]
