"""`gripfast doctor` at real MariaDB servers that are set up wrongly, each in one way, and at a sound one."""

import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import gripfast
from gripfast.stores.mysql.doctor import Facts, MysqlTable, judge
from stores.doctor_stage import found, report_on
from stores.sql_troubles import as_user, user
from support.sql_process import DATABASE, USER
from support.sql_servers import MariaServer
from support.waiting import until

GALERA = Path("/usr/lib/galera/libgalera_smm.so")


@pytest.fixture(scope="module")
def server() -> Iterator[MariaServer]:
    """As it would be in production, and it can have replicas."""
    with MariaServer("log-bin", "server-id=1", "binlog-format=ROW", "sync-binlog=1", durable=True) as server:
        server.execute(f"GRANT PROCESS ON *.* TO {USER}@'%'")
        with gripfast.connect(server.url) as client:
            client.lock("made").acquire().release()
        yield server


@contextlib.contextmanager
def with_variable(server: MariaServer, name: str, value: str) -> Iterator[None]:
    [(before,)] = server.execute(f"SELECT @@GLOBAL.{name}")
    server.execute(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.execute(f"SET GLOBAL {name} = %s", before)


@pytest.mark.parametrize("mode", ["lease", "row", "advisory"])
def test_a_sound_server_has_nothing_to_say(server: MariaServer, mode: str) -> None:
    report = report_on(server.lock_space(mode=mode))
    assert (report.usable, report.findings) == (True, ())
    assert report.summary.startswith("MariaDB 1")


@pytest.mark.parametrize(
    "variable, value, mode, name, kind",
    [
        ("innodb_flush_log_at_trx_commit", "0", "lease", "mysql-flush-log", "problem"),
        ("innodb_flush_log_at_trx_commit", "2", "lease", "mysql-sync-log", "advice"),
        ("binlog_format", "'STATEMENT'", "row", "mysql-binlog-format", "advice"),
        ("read_only", "1", "lease", "mysql-read-only", "problem"),
        ("wait_timeout", "20", "row", "mysql-idle-sessions", "advice"),
        ("idle_transaction_timeout", "10", "row", "mysql-idle-sessions", "advice"),
    ],
)
def test_a_wrong_setting_is_found(
    server: MariaServer, variable: str, value: str, mode: str, name: str, kind: str
) -> None:
    with with_variable(server, variable, value):
        finding = found(server.lock_space(mode=mode))[name]
    assert (finding.kind, variable in finding.what) == (kind, True)


def test_a_replica_that_no_commit_waits_for_is_found(server: MariaServer) -> None:
    """mariadb-binlog reads from the server as a replica does."""
    socket, log = str(server.folder / "socket"), (server.folder / "followed").open("w")
    line = ["mariadb-binlog", "--no-defaults", "--read-from-remote-server", "--stop-never", "--raw", "--to-last-log"]
    [(first, *_)] = server.execute("SHOW BINARY LOGS")[:1]
    place = [f"--socket={socket}", "--user=root", f"--result-file={server.folder}/copy-", str(first)]
    with log:
        follower = subprocess.Popen([*line, *place], stdout=log, stderr=log)
    try:
        until(lambda: found(server.url).get("mysql-asynchronous"))
        with with_variable(server, "sync_binlog", "0"):
            assert "mysql-sync-binlog" in found(server.url)
    finally:
        follower.terminate()
        follower.wait()


def test_connections_that_are_nearly_used_up_are_found(server: MariaServer) -> None:
    with with_variable(server, "max_connections", "30"), ExitStack() as open_ones:
        for _ in range(25):
            open_ones.enter_context(server._connect(DATABASE))
        findings = found(server.lock_space(mode="row", max_connections=20))
    assert "of 30 connections are used" in findings["mysql-connections"].what
    assert "may use 20 connections" in findings["mysql-sessions"].what


def test_a_table_of_another_engine_is_found(server: MariaServer) -> None:
    with server.fresh_database() as url:
        found(url)  # makes the tables
        server.execute("ALTER TABLE gripfast_lock ENGINE = Aria", database=url.rpartition("/")[2])
        finding = found(url)["mysql-engine"]
    assert (finding.kind, finding.todo) == (
        "problem",
        "Stop all clients, then ALTER TABLE gripfast_lock ENGINE = InnoDB",
    )


def test_a_user_who_can_not_see_other_sessions_is_found(server: MariaServer) -> None:
    with user(server) as name:
        server.execute(f"GRANT ALL ON {DATABASE}.* TO {name}@'%'")
        report = report_on(as_user(server.url, name))
    assert [each.name for each in report.findings] == ["mysql-no-process"]


def test_a_user_without_rights_is_found(server: MariaServer) -> None:
    with user(server) as name:
        finding = found(as_user(server.url, name))["unusable"]
    assert finding.kind == "problem"


@pytest.fixture
def galera() -> Iterator[MariaServer]:
    """A cluster of one node, as the package of MariaDB makes it possible."""
    settings = ("wsrep-on=1", f"wsrep-provider={GALERA}", "wsrep-cluster-address=gcomm://", "binlog-format=ROW")
    private = "wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:0;ist.recv_addr=127.0.0.1;pc.recovery=false"
    with MariaServer(*settings, "innodb-autoinc-lock-mode=2", private) as server:
        yield server


def test_a_node_of_galera_is_found(galera: MariaServer) -> None:
    assert "Galera" in found(galera.url)["mysql-cluster"].what
    findings = found(galera.url_with(mode="row"))
    assert "Galera" in findings["unusable"].what
    assert findings["mysql-several-primaries"].kind == "problem"


# Judging, by plain values ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed, name",
    [
        ({"variables": {"version": "10.5.8-MariaDB"}}, "mysql-old"),
        ({"variables": {"version": "5.7.44", "version_comment": "MySQL Community Server"}}, "mysql-old"),
        ({"variables": {"group_replication_single_primary_mode": "OFF"}}, "mysql-cluster"),
        ({"encrypted": False, "host": "db.example"}, "mysql-plain-text"),
        ({"tables": [MysqlTable("gripfast_lock", "InnoDB", 2_000_000)]}, "sql-many-names"),
    ],
)
def test_facts_are_judged(changed: dict[str, object], name: str) -> None:
    facts = Facts("localhost", "lease", 100)
    assert [*judge(facts)] == []
    assert [each.name for each in judge(facts._replace(**changed))] == [name]  # type: ignore[arg-type]


def test_a_node_of_galera_that_is_cut_off_is_judged() -> None:
    variables = {"wsrep_on": "ON", "wsrep_provider": str(GALERA)}
    facts = Facts("localhost", "lease", 100, variables=variables, status={"wsrep_cluster_status": "non-Primary"})
    assert "mysql-cluster-not-ready" in [each.name for each in judge(facts)]


def test_tables_without_row_locks_may_have_another_engine() -> None:
    facts = Facts("localhost", "lease", 100, tables=[MysqlTable("gripfast_grant", "Aria", 3)])
    assert [*judge(facts)] == []
