"""How a connection to PostgreSQL begins: what its session is set to, and what differs behind a proxy that pools."""

from collections.abc import Iterator

import psycopg
import pytest

from gripfast.stores.postgres import scripts
from gripfast.stores.sql.ports import LinkDown
from gripfast.stores.sql.statement import Query, Statement
from stores.postgres_requests import (
    answer_of,
    claimed,
    dialect_of,
    make_tables,
    new_name,
    prepared,
    refused,
    setting,
    sql,
    told,
    waits_for_lock,
    wire_through,
    wire_to,
)
from support.pgbouncer import pgbouncer
from support.proxy import HOST, Proxy
from support.sql_servers import postgres_server
from support.waiting import until

LENGTH = Statement("SELECT length(:text)")


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy((HOST, postgres_server().port)) as proxy:
        yield proxy


# Sessions -------------------------------------------------------------------------------------------------------------


def test_a_shared_connection_gives_up_what_takes_too_long() -> None:
    with wire_to(timeout=2.0) as wire:
        assert [setting(wire, name) for name in ("statement_timeout", "lock_timeout")] == ["2s", "2s"]
        assert refused(wire, sql("SELECT pg_sleep(60)")).kind == "busy"


def test_a_session_has_a_name_unless_it_was_given_one() -> None:
    with wire_to() as wire:
        assert setting(wire, "application_name") == "gripfast"
    with wire_to(postgres_server().url_with(application_name="mine")) as wire:
        assert setting(wire, "application_name") == "mine"


@pytest.mark.parametrize("is_shared", [True, False])
def test_what_the_role_has_for_defaults_does_not_matter(is_shared: bool) -> None:
    server = postgres_server()
    with server.fresh_database() as url:
        database = url.rpartition("/")[2]
        limits = ("idle_session_timeout", "idle_in_transaction_session_timeout")
        for each in (*limits, "statement_timeout", "lock_timeout"):
            server.execute(f"ALTER DATABASE {database} SET {each} = '7s'")
        with wire_to(url, is_shared=is_shared) as wire:
            assert {setting(wire, each) for each in limits} == {"0"}
            expected = "10s" if is_shared else "0"
            assert {setting(wire, each) for each in ("statement_timeout", "lock_timeout")} == {expected}


def test_text_is_utf_8_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with wire_to() as wire:
        assert told(wire, [Query(LENGTH, {"text": "ö🔒"})]) == [(b"2",)]


# Behind a proxy that pools --------------------------------------------------------------------------------------------


def test_leases_work_through_a_pooling_proxy_and_leave_nothing_in_its_sessions() -> None:
    with pgbouncer(postgres_server()) as url, wire_to(url) as first, wire_to(url) as second:
        make_tables(first)
        assert first.is_proxied
        assert first.session != first.pgconn.backend_pid
        name = new_name()
        for turn in range(10):
            assert claimed(first, name, f"a{turn}").owner == f"a{turn}"
            assert claimed(second, name, f"b{turn}").owner == f"a{turn}"
            assert told(second, scripts.release(name, f"a{turn}", "c")) == [(b"1", b"0")]
            for each in (first, second):
                assert prepared(each) == 0
        changed = "SELECT name FROM pg_settings WHERE setting <> reset_val AND name = ANY(%s)"
        with psycopg.connect(url) as one, psycopg.connect(url) as another:  # both of its sessions
            names = ["statement_timeout", "lock_timeout", "default_transaction_isolation", "jit"]
            assert [each.execute(changed, [names]).fetchall() for each in (one, another)] == [[], []]


def test_a_request_through_a_pooling_proxy_has_its_limit_with_it() -> None:
    with pgbouncer(postgres_server(), sessions=1) as url, wire_to(url, timeout=3.0) as wire:
        assert setting(wire, "lock_timeout") == "3s"
        assert refused(wire, sql("SELECT pg_sleep(60)")).kind == "busy"
        with wire_to(url, timeout=9.0) as other:
            assert setting(other, "lock_timeout") == "9s"


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_session_of_ones_own_can_not_be_had_from_a_pooling_proxy(mode: str) -> None:
    with pgbouncer(postgres_server(), mode) as url:
        with pytest.raises(LinkDown) as raised:
            dialect_of(url).dial(10, is_shared=False)
        assert raised.value.fault.is_permanent
        assert "pgbouncer" in str(raised.value)
        assert "mode=lease" in str(raised.value)


def test_a_connection_straight_to_the_server_is_not_taken_for_a_proxy(proxy: Proxy) -> None:
    with wire_to() as wire, wire_through(proxy, is_shared=False) as through:
        assert not wire.is_proxied
        assert not through.is_proxied
        wire.send(sql("SELECT pg_advisory_lock(4711)"))
        answer_of(wire)
        through.send(sql("SELECT pg_advisory_lock(4711)"))
        until(lambda: waits_for_lock(through.session))
