"""Servers that are set up in other ways than most, or refuse what is asked: each is told in words to act on."""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores.mysql import protocol, scripts
from gripfast.stores.sql.ports import Fault, LinkDown, Refusal
from gripfast.stores.sql.statement import Query, Statement
from stores.mysql_stage import CARD, MINUTE, SECOND, Stage, answer, ask, dialect, last, staged
from support.ports import reserved_port
from support.server_process import HOST
from support.sql_process import PASSWORD, USER
from support.sql_servers import MariaServer, mariadb_server

ODD = [
    "transaction-isolation=SERIALIZABLE",
    "sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE,PAD_CHAR_TO_FULL_LENGTH",
    "autocommit=0",
    "completion-type=CHAIN",
    "character-set-server=latin1",
    "max-statement-time=0.5",
    "wait-timeout=4",
    "idle-transaction-timeout=1",
    "idle-readonly-transaction-timeout=1",
    "idle-write-transaction-timeout=1",
    "innodb-lock-wait-timeout=1",
    "sysdate-is-now",
]
GALERA = Path("/usr/lib/galera/libgalera_smm.so")


@pytest.fixture(scope="module")
def odd_server() -> Iterator[MariaServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        with MariaServer(*ODD) as server:
            yield server


@pytest.fixture(scope="module")
def logging_server() -> Iterator[MariaServer]:
    """Replicates by statements, and takes no writes under READ COMMITTED therefore."""
    with MariaServer("log-bin=log", "binlog-format=STATEMENT", "server-id=1") as server:
        yield server


@pytest.fixture(params=["odd_server", "logging_server"])
def unusual(request: pytest.FixtureRequest) -> Iterator[Stage]:
    with staged(request.getfixturevalue(request.param)) as stage:
        yield stage


def test_leases_do_not_depend_on_the_servers_defaults(unusual: Stage) -> None:
    assert unusual.row(scripts.claim("Job", "a", MINUTE, CARD))[0] == b"a"
    assert unusual.row(scripts.claim("job ", "b", MINUTE, CARD))[0] == b"b"
    assert unusual.row(scripts.claim("Job", "b", MINUTE, CARD))[0] == b"a"
    assert last(ask(unusual.shared, scripts.renew("Job", "a", MINUTE, False))).affected == 1
    assert unusual.rows(scripts.release("Job", "a", "")) == [(b"1", b"0")]
    assert unusual.row(scripts.claim("Job", "b", MINUTE, CARD))[0] == b"b"
    assert unusual.rows(scripts.force_release("Job", "")) == [(b"1", b"0")]
    found = [row[:2] for row in unusual.rows(scripts.page("", "", 9))]
    assert found == [(b"\0gripfast layout", None), (b"Job", None), (b"job ", b"b")]
    unusual.age(2 * MINUTE)
    unusual.rows(scripts.sweep(9, MINUTE))
    assert [row[0] for row in unusual.rows(scripts.page("", "", 9))] == [b"\0gripfast layout"]


@pytest.mark.parametrize("mode", ["row", "advisory"])
def test_locks_in_sessions_do_not_depend_on_them_either(mode: str, unusual: Stage) -> None:
    mine, other = unusual.dial(), unusual.dial()
    for turn in range(2):
        if mode == "row":
            unusual.rows(scripts.row_make("job"))
            mark = unusual.row(scripts.row_try("job", MINUTE), mine)[0]
            assert unusual.refusal(scripts.row_try("job", MINUTE), other).kind == "busy"
            unusual.rows(scripts.row_make("other"))
        else:
            mark = unusual.dialect.database.encode()
            assert unusual.row(scripts.advisory_try(mark, MINUTE), mine) == (b"1",)
            assert unusual.row(scripts.advisory_try(mark, MINUTE), other) == (b"0",)
        unusual.rows(scripts.grant(mode, "job", str(turn), mine.session, mark, MINUTE, CARD))
        assert unusual.row(scripts.seen(mode, "job"))[-1] == b"1"
        unusual.rows(scripts.row_free() if mode == "row" else scripts.advisory_free(mark), mine)
        unusual.rows(scripts.row_free(), other)
    unusual.age(2 * MINUTE, "gripfast_grant")
    unusual.rows(scripts.sweep_sessions(mode, 9, MINUTE))
    assert unusual.rows(scripts.seen_page(mode, "", "", 9)) == []


def test_a_row_can_be_made_while_somebody_has_looked_for_it_in_vain(odd_server: MariaServer) -> None:
    """Under other levels than READ COMMITTED its place would be locked."""
    with staged(odd_server) as stage:
        own = stage.dial()
        for name in ("b", "a", "c"):
            assert stage.rows(scripts.row_try(name, MINUTE), own) == []
            stage.rows(scripts.row_make(name))
            assert stage.row(scripts.row_try(name, MINUTE), own)[0]


def test_a_transaction_that_is_idle_for_less_than_its_ttl_goes_on(odd_server: MariaServer) -> None:
    with staged(odd_server) as stage:
        own = stage.dial()
        stage.rows(scripts.row_make("job"))
        stage.rows(scripts.row_try("job", MINUTE), own)
        stage.sql("DO SLEEP(1.5)", stage.dial())
        assert stage.rows(scripts.ping("row", MINUTE), own)


def test_sessions_are_set_up_in_the_same_way_everywhere(unusual: Stage, database: Stage) -> None:
    settings = """
        SELECT @@autocommit, @@completion_type, @@time_zone, @@sql_mode, @@wait_timeout, @@max_statement_time,
        @@tx_read_only, @@character_set_client, @@character_set_results
    """
    for is_shared in (True, False):
        here, there = (each.sql(settings, each.dial(is_shared)) for each in (unusual, database))
        assert here == there
    assert unusual.dial(is_shared=True).session


@pytest.fixture
def database() -> Iterator[Stage]:
    with staged(mariadb_server()) as stage:
        yield stage


def test_it_reads_what_is_committed_unless_the_server_could_not_write_then(
    odd_server: MariaServer, logging_server: MariaServer
) -> None:
    for server, level in ((odd_server, b"READ-COMMITTED"), (logging_server, b"REPEATABLE-READ")):
        with staged(server) as stage:
            for is_shared in (True, False):
                assert stage.sql("SELECT @@tx_isolation", stage.dial(is_shared)) == [(level,)]


CHANGES = [datetime(2026, 3, 29, 1, tzinfo=UTC), datetime(2026, 10, 25, 1, tzinfo=UTC)]


@pytest.mark.parametrize("change", CHANGES, ids=["spring", "autumn"])
def test_the_servers_time_zone_changes_no_lease(odd_server: MariaServer, change: datetime) -> None:
    """Its clock is set for the session: an hour is left out, or told twice, by the clocks on its wall."""
    with staged(odd_server) as stage:
        assert stage.sql("SELECT @@system_time_zone")[0][0] in (b"CET", b"CEST")
        set_clock(stage, change - timedelta(seconds=10))
        first = stage.row(scripts.claim("job", "a", MINUTE, CARD))
        assert first[2] == b"60000000"
        assert first[1] == str(int((change.timestamp() - 10) * SECOND)).encode()
        set_clock(stage, change + timedelta(seconds=40))
        assert stage.row(scripts.claim("job", "b", MINUTE, CARD))[:3] == (b"a", first[1], b"10000000")
        set_clock(stage, change + timedelta(seconds=51))
        assert stage.row(scripts.claim("job", "b", MINUTE, CARD))[0] == b"b"


def test_a_session_that_would_read_only_can_write(database: Stage) -> None:
    connect = database.dialect._connect

    def reading(timeout: float) -> Any:
        connection = connect(timeout)
        connection.query("SET SESSION TRANSACTION READ ONLY")
        return connection

    database.dialect._connect = reading
    assert database.row(scripts.claim("job", "a", MINUTE, CARD), database.dial(is_shared=True))[0] == b"a"


def set_clock(stage: Stage, moment: datetime) -> None:
    stage.sql("SET SESSION timestamp = :seconds", seconds=int(moment.timestamp()))


def fault_of(stage: Stage, queries: Sequence[Query]) -> Fault:
    return stage.dialect.refused(stage.refusal(queries))


def test_a_server_that_is_read_only_is_told() -> None:
    with MariaServer() as server, staged(server) as stage:
        server.make_read_only()
        fault = fault_of(stage, scripts.claim("job", "a", MINUTE, CARD))
        assert fault.is_permanent
        assert "read-only: use the address of the primary" in str(fault.error)
        server.make_writable()
        assert stage.row(scripts.claim("job", "a", MINUTE, CARD))[0] == b"a"


def test_a_server_without_connections_left_is_told() -> None:
    with MariaServer("max-connections=10") as server, contextlib.ExitStack() as ends:
        made = dialect(server.url)
        with pytest.raises(LinkDown, match="has no connection left: raise max_connections") as told:
            for _ in range(12):
                ends.callback(made.dial(5.0, False).close)
        assert told.value.fault.kind == "full"
        assert not told.value.fault.is_permanent


@contextlib.contextmanager
def user(rights: str, **options: str) -> Iterator[str]:
    """The URL of a user who may do this much, in a database with the tables in it."""
    server = mariadb_server()
    name = f"u{uuid.uuid4().hex[:20]}"
    with staged(server) as stage:
        server.execute(f"CREATE USER {name}@'%' IDENTIFIED BY '{PASSWORD}' {options.get('limits', '')}")
        try:
            server.execute(f"GRANT {rights} ON {stage.dialect.database}.* TO {name}@'%'")
            yield server.url_with(database=stage.dialect.database).replace(f"//{USER}:", f"//{name}:")
        finally:
            server.execute(f"DROP USER {name}@'%'")


def test_four_rights_are_enough_where_the_tables_are_made() -> None:
    with user("SELECT, INSERT, UPDATE, DELETE") as url:
        made = dialect(url)
        shared, own = made.dial(5.0, True), made.dial(5.0, False)
        with contextlib.closing(shared), contextlib.closing(own):
            mark = made.database
            for queries in (
                scripts.claim("job", "a", MINUTE, CARD), scripts.register("job", 1), scripts.renew("job", "a", 1, True),
                scripts.why("job", "a"), scripts.look("job"), scripts.page("", "", 5), scripts.release("job", "a", ""),
                scripts.force_release("job", ""), scripts.force_release_noted("job", "", "why"), scripts.sweep(5, 1),
                scripts.row_make("job"),
                scripts.grant("row", "job", "a", own.session, "", MINUTE, CARD), scripts.seen("row", "job"),
                scripts.seen_page("row", "", "", 5), scripts.sweep_sessions("row", 5, MINUTE),
            ):  # fmt: skip
                assert isinstance(ask(shared, queries), list)
            for queries in (
                scripts.row_try("job", MINUTE), scripts.ping("row", MINUTE), scripts.row_free(),
                scripts.advisory_try(mark, MINUTE), scripts.advisory_free(mark),
            ):  # fmt: skip
                assert isinstance(ask(own, queries), list)
            assert isinstance(ask(shared, scripts.end_session(own.session, own.birth)), list)


def test_a_missing_right_is_told_with_the_grant_that_gives_it() -> None:
    with user("SELECT") as url:
        made = dialect(url)
        with contextlib.closing(made.dial(5.0, True)) as wire:
            told = ask(wire, scripts.claim("job", "a", MINUTE, CARD))
            assert isinstance(told, Refusal)
            fault = made.refused(told)
    assert fault.is_permanent
    assert f"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON `{made.database}`.* TO the user" in str(fault.error)


def test_a_missing_table_is_told_with_the_way_to_make_it(database: Stage) -> None:
    database.sql("DROP TABLE gripfast_lock")
    fault = fault_of(database, scripts.claim("job", "a", MINUTE, CARD))
    assert (fault.kind, fault.is_permanent) == ("no_table", False)
    assert "`gripfast schema mysql`" in str(fault.error)


def test_a_users_own_limit_of_connections_is_told() -> None:
    with user("SELECT", limits="WITH MAX_USER_CONNECTIONS 1") as url:
        made = dialect(url)
        with contextlib.closing(made.dial(5.0, True)), pytest.raises(LinkDown, match="or this user's limit") as told:
            made.dial(5.0, True)
        assert told.value.fault.kind == "full"


LOGINS = {
    "password": ("nobody:wr0ng", "gripfast", "refuses the login: check the user name, the password"),
    "database": (f"{USER}:{quote(PASSWORD, safe='')}", "nowhere", "GRANT SELECT"),
}


@pytest.mark.parametrize("login, name, words", LOGINS.values(), ids=LOGINS)
def test_a_login_that_is_refused_is_told_without_the_password(login: str, name: str, words: str) -> None:
    made = dialect(f"mysql://{login}@{HOST}:{mariadb_server().port}/{name}")
    with pytest.raises(LinkDown, match=words) as told:
        made.dial(5.0, True)
    fault = told.value.fault
    assert fault.is_permanent
    for secret in ("wr0ng", PASSWORD, quote(PASSWORD, safe="")):
        assert secret not in f"{told.value} {fault} {made!r} {vars(fault.error)}"


def test_nobody_at_the_address_is_told(tmp_path: Path) -> None:
    for where in (f"{HOST}:1/db", f"/db?unix_socket={tmp_path / 'none'}", "no-such-host.invalid/db"):
        with pytest.raises(LinkDown, match=r"can't be reached: .*; check that the server runs") as told:
            dialect(f"mysql://{where}").dial(5.0, True)
        assert told.value.fault.kind == "down"
        assert not told.value.fault.is_permanent


def test_a_server_without_tls_or_with_another_certificate_is_told(tmp_path: Path) -> None:
    plain = mariadb_server().url + "?ssl_ca=/etc/ssl/certs/ca-certificates.crt&ssl_verify_cert=true"
    with pytest.raises(LinkDown, match="check that the server uses TLS on this port"):
        dialect(plain).dial(5.0, True)


def test_a_node_of_galera_gives_leases_and_refuses_locks_in_sessions() -> None:
    port = reserved_port()
    settings = {
        "wsrep-on": "ON",
        "wsrep-provider": GALERA,
        "wsrep-cluster-address": "gcomm://",
        "wsrep-node-address": HOST,
        "wsrep-provider-options": f"gmcast.listen_addr=tcp://{HOST}:{port};base_port={port}",
        "binlog-format": "ROW",
    }
    with MariaServer(*(f"{name}={value}" for name, value in settings.items())) as server, staged(server) as stage:
        assert stage.row(scripts.claim("job", "a", MINUTE, CARD))[0] == b"a"
        assert stage.rows(scripts.release("job", "a", "")) == [(b"1", b"0")]
        with pytest.raises(LinkDown, match=r"is a node of Galera\. There each node has its own row locks") as told:
            stage.dial()
        assert told.value.fault.is_permanent


VARIABLES: dict[str, tuple[dict[str, str], str | None]] = {
    "MariaDB": ({"wsrep_on": "OFF", "wsrep_provider": "none"}, None),
    "MySQL": ({"binlog_format": "ROW", "log_bin": "ON"}, None),
    "MariaDB that could be": ({"wsrep_on": "ON", "wsrep_provider": "none"}, None),
    "a node that is off": ({"wsrep_on": "OFF", "wsrep_provider": "/usr/lib/libgalera_smm.so"}, None),
    "Galera": ({"wsrep_on": "ON", "wsrep_provider": "/usr/lib/libgalera_smm.so"}, "Galera"),
    "one primary": ({"group_replication_single_primary_mode": "ON"}, None),
    "several primaries": ({"group_replication_single_primary_mode": "OFF"}, "group replication with several primaries"),
}


@pytest.mark.parametrize("variables, cluster", VARIABLES.values(), ids=VARIABLES)
def test_what_makes_a_server_one_of_several(variables: dict[str, str], cluster: str | None) -> None:
    rows = [(name.encode(), value.encode()) for name, value in variables.items()]
    assert protocol.several_primaries(rows) == cluster


def test_a_session_that_the_server_ended_leaves_the_outcome_unknown() -> None:
    fault = protocol.refused("mysql://here/db", "db", Refusal("gone", "1927", "Connection was killed"))
    assert isinstance(fault.error, OutcomeUnknown)
    said = str(fault.error)
    assert said.startswith("mysql://here/db ended the session: look at its log for the reason, and try again")
    assert said.endswith(" (error 1927: Connection was killed)")
    busy = protocol.refused("mysql://here/db", "db", Refusal("busy", "1205", "Lock wait timeout exceeded"))
    assert type(busy.error) is StoreUnavailable


def test_a_deadlock_is_told_as_one_that_may_be_asked_again(database: Stage) -> None:
    other = database.dial()
    for name in ("a", "b"):
        database.rows(scripts.claim(name, "a", MINUTE, CARD))
    lock = Statement("UPDATE gripfast_lock SET ttl_us = ttl_us + 1 WHERE name = :name")
    begin = Query(Statement("START TRANSACTION"))
    ask(database.shared, [begin, Query(lock, {"name": "a"})])
    ask(other, [begin, Query(lock, {"name": "b"})])
    other.send([Query(lock, {"name": "a"})])
    told = ask(database.shared, [Query(lock, {"name": "b"})])
    if isinstance(told, list):  # the other one was chosen
        told = answer(other)
    assert isinstance(told, Refusal)
    assert told.kind == "retry"
