"""What an operator is told when PostgreSQL says no: what is wrong, and what can be done about it."""

import pytest

from gripfast.errors import OutcomeUnknown, StoreUnavailable
from gripfast.stores.postgres import protocol, scripts
from gripfast.stores.sql.ports import Fault, Kind, Refusal
from stores.postgres_requests import CARD, TTL, dialect_of, make_tables, refused, sql, wire_to
from support.sql_servers import PostgresServer, postgres_server

WHERE = "postgresql://host:5432/db"


def fault_of(code: str, message: str = "in the server's words", is_fatal: bool = False) -> Fault:
    return protocol.refused(WHERE, Refusal(protocol.kind_of(code, is_fatal), code, message))


@pytest.mark.parametrize(
    "code, kind, words",
    [
        ("55P03", "busy", "in time"),
        ("57014", "busy", "in time"),
        ("40001", "retry", "try again"),
        ("40P01", "retry", "try again"),
        ("23505", "retry", "try again"),
        ("42P01", "no_table", "gripfast schema"),
        ("3F000", "no_table", "gripfast schema"),
        ("42501", "no_rights", "GRANT SELECT, INSERT, UPDATE, DELETE ON gripfast_lock, gripfast_row, gripfast_grant"),
        ("25006", "read_only", "the primary"),
        ("53300", "full", "max_connections"),
        ("57P01", "gone", "ended the session"),
        ("57P03", "gone", "starting, stopping or recovering"),
        ("25P03", "gone", "ended the session"),
        ("57P05", "gone", "ended the session"),
        ("28P01", "login", "pg_hba.conf"),
        ("28000", "login", "pg_hba.conf"),
        ("3D000", "login", "database"),
        ("53100", "other", "disk"),
        ("42703", "other", "another version"),
        ("22P05", "unstorable", "UTF8"),
        ("XX000", "other", "answered with an error"),
    ],
)
def test_each_kind_of_refusal_has_words_to_act_on(code: str, kind: Kind, words: str) -> None:
    fault = fault_of(code)
    assert fault.kind == kind
    assert words in str(fault.error)
    assert str(fault.error).startswith(f"{WHERE} ")
    assert "in the server's words" in str(fault.error)
    assert list(fault.error.nodes) == [WHERE]
    assert fault.is_permanent == (kind in ("no_rights", "read_only", "login", "unstorable"))


def test_what_is_fatal_to_the_session_leaves_the_outcome_unknown() -> None:
    assert type(fault_of("XX000", is_fatal=True).error) is OutcomeUnknown
    assert type(fault_of("XX000").error) is StoreUnavailable


def test_a_server_that_is_too_old_for_advisory_locks_is_told_as_such() -> None:
    fault = fault_of("42704", 'unrecognized configuration parameter "idle_session_timeout"')
    assert "needs PostgreSQL 14" in str(fault.error)
    assert fault.is_permanent


@pytest.mark.parametrize(
    "text, kind, words",
    [
        (
            'connection to server at "h", port 1 failed: FATAL:  sorry, too many clients already',
            "full",
            "max_connections",
        ),
        ("FATAL:  remaining connection slots are reserved for non-replication superusers", "full", "max_connections"),
        ('FATAL:  too many connections for role "x"', "full", "limit of this user"),
        ('FATAL:  password authentication failed for user "x"', "login", "password"),
        ("fe_sendauth: no password supplied", "login", "password"),
        ('FATAL:  no pg_hba.conf entry for host "1.2.3.4", user "x"', "login", "pg_hba.conf"),
        ('FATAL:  database "x" does not exist', "login", "database"),
        ("FATAL:  the database system is starting up", "down", "starting, stopping or recovering"),
        ("session is read-only", "down", "no primary"),
        ("Connection refused\n\tIs the server running on that host?", "down", "check that the server runs"),
    ],
)
def test_why_there_is_no_connection(text: str, kind: str, words: str) -> None:
    fault = protocol.not_connected(WHERE, [text])
    assert fault.kind == kind
    assert words in str(fault.error)
    assert not {"\n", "?"} & set(str(fault.error))


def test_several_hosts_are_told_together_and_nothing_is_told_twice() -> None:
    refused_words = "Connection refused"
    fault = protocol.not_connected(WHERE, [refused_words, None, refused_words])
    assert str(fault.error).count(refused_words) == 1
    assert "not made in time" in str(fault.error)


# On a real server -----------------------------------------------------------------------------------------------------


def test_a_replica_is_refused_as_read_only() -> None:
    with PostgresServer() as server:
        with wire_to(server.url) as wire:
            make_tables(wire)
        server.make_read_only()
        for queries in (scripts.claim("job", "a", TTL, CARD), scripts.row_make("job"), scripts.row_try("job", TTL)):
            with wire_to(server.url, is_shared=False) as wire:
                fault = dialect_of(server.url).refused(refused(wire, queries))
            assert fault.kind == "read_only"
            assert "use the address of the primary" in str(fault.error)


def test_who_may_not_make_tables_is_told_what_to_grant() -> None:
    server = postgres_server()
    with server.fresh_database() as url, wire_to(url) as wire:
        server.execute("ALTER SCHEMA public OWNER TO postgres", database=url.rpartition("/")[2])
        fault = dialect_of(url).refused(refused(wire, [*sql("SELECT 1"), *sql(scripts.SCHEMA[0].sql)]))
    assert fault.kind == "no_rights"
    assert "GRANT SELECT" in str(fault.error)
    assert "gripfast schema" in str(fault.error)


def test_who_may_not_end_a_session_is_told_what_to_grant() -> None:
    server = postgres_server()
    with server._connect("gripfast") as admin, wire_to() as wire:
        fault = dialect_of(server.url).refused(refused(wire, scripts.end_session(admin.info.backend_pid, "")))
    assert fault.kind == "no_rights"
    assert "pg_signal_backend" in str(fault.error)


def test_a_name_that_the_databases_encoding_has_no_letter_for_is_told_as_such() -> None:
    server = postgres_server()
    server.execute(
        "CREATE DATABASE latin TEMPLATE template0 ENCODING LATIN1 LOCALE 'C' LOCALE_PROVIDER libc OWNER gripfast"
    )
    try:
        url = server.url_with(database="latin")
        with wire_to(url) as wire:
            make_tables(wire)
            fault = dialect_of(url).refused(refused(wire, scripts.claim("🔒", "a", TTL, CARD)))
        assert "the database's encoding is not UTF8" in str(fault.error)
    finally:
        server.execute("DROP DATABASE latin WITH (FORCE)")
