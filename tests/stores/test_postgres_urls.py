"""What a PostgreSQL URL or a SQLAlchemy engine says, and that no password of it is told."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import gripfast
from gripfast import ConfigurationError
from gripfast.stores.postgres.factory import dialect, factory, factory_of
from gripfast.stores.sql.ports import LinkDown
from stores.postgres_requests import dialect_of, setting, sql, told, wire_to
from support.ports import closed_port
from support.sql_process import DATABASE, HOST, PASSWORD, USER
from support.sql_servers import PostgresServer, postgres_server
from support.waiting import until

SECRET = "geheim"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSERVICE", "PGOPTIONS"):
        monkeypatch.delenv(name, raising=False)


@contextlib.contextmanager
def silent_host() -> Iterator[int]:
    """The port of one that takes connections and says nothing."""
    with socket.create_server((HOST, 0), backlog=5) as listener:
        yield listener.getsockname()[1]


def tried(url: str, timeout: float = 10.0, is_shared: bool = True) -> str:
    """The error of a connection that can't be made."""
    with pytest.raises(LinkDown) as raised:
        dialect_of(url).dial(timeout, is_shared)
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


# Where it is ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url, where, database",
    [
        (f"postgresql://u:{SECRET}@host:5433/db", "postgresql://host:5433/db", "db"),
        (f"postgres://u:{SECRET}@host/db", "postgresql://host:5432/db", "db"),
        (f"postgresql+psycopg://u:{SECRET}@host/db", "postgresql://host:5432/db", "db"),
        ("postgresql://u@host", "postgresql://host:5432/u", "u"),
        ("postgresql://u@[::1]:5433/db", "postgresql://[::1]:5433/db", "db"),
        (f"postgresql://u:{SECRET}@a,b:5433,[::1]:5434/db", "postgresql://a:5432,b:5433,[::1]:5434/db", "db"),
        ("postgresql://u@/db?host=/run/pg", "postgresql:///run/pg:5432/db", "db"),
        ("postgresql://u@%2Frun%2Fpg/db", "postgresql:///run/pg:5432/db", "db"),
        (f"postgresql:///db?host=h&port=1&user=u&password={SECRET}", "postgresql://h:1/db", "db"),
        ("postgresql://h/d%C3%A4ten%2Fbank", "postgresql://h:5432/däten/bank", "däten/bank"),
    ],
)
def test_what_a_url_is_called_in_messages(url: str, where: str, database: str) -> None:
    made = dialect_of(url)
    assert (made.where, made.database) == (where, database)
    assert SECRET not in repr(made)
    assert SECRET not in repr(vars(made).keys())


def test_the_environment_fills_in_what_a_url_leaves_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PGHOST", HOST), ("PGPORT", "7"), ("PGDATABASE", "db")):
        monkeypatch.setenv(name, value)
    assert dialect_of("postgresql://").where == f"postgresql://{HOST}:7/db"
    assert f"postgresql://{HOST}:7/db can't be reached" in tried("postgresql://")


def test_options_of_libpq_are_taken_and_others_are_left() -> None:
    options: dict[str, Any] = {
        "sslmode": "disable",
        "connect_timeout": 3,
        "application_name": "x",
        "mode": "row",
        "pool_size": "5",
    }
    options |= {"replication": "true"}
    dialect(urlsplit("postgresql://h/db"), options)
    assert options == {"mode": "row", "pool_size": "5", "replication": "true"}


def test_options_that_nobody_knows_are_an_error_without_the_password() -> None:
    with pytest.raises(ConfigurationError, match="pool_size") as raised:
        gripfast.connect(f"postgresql://u:{SECRET}@h/db?pool_size=5")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://u:{SECRET}@geheim@h/db",
        f"postgresql://u:ge/{SECRET}@h/db",
        f"postgresql://u:ge?{SECRET}@h/db",
        f"postgresql://u:{SECRET}%@h/db",
        f"postgresql://u:{SECRET}%zz@h/db",
        f"postgresql://u:{SECRET}@[::1/db",
        f"postgresql://u:{SECRET}@h:port/db",
        f"postgresql://u:{SECRET}@h:1,i:port/db",
        f"postgresql://u:{SECRET}@a,b/db?port=1,2,3",
        f"postgresql://u:{SECRET}@h/db?connect_timeout=soon",
    ],
)
def test_a_url_that_can_not_be_read_is_an_error_without_the_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        gripfast.connect(url)
    assert SECRET not in str(raised.value)


def test_a_factory_is_made_without_asking_anybody() -> None:
    options = dict(parse_qsl("mode=row&sslmode=disable"))
    assert factory(urlsplit("postgresql://nowhere.invalid/db"), options).where == "postgresql://nowhere.invalid:5432/db"
    assert options == {}


# Connections ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
def test_user_and_password_are_unquoted(scheme: str) -> None:
    with wire_to(postgres_server().url.replace("postgresql", scheme, 1)) as wire:
        assert told(wire, sql("SELECT current_user, current_database()")) == [(USER.encode(), DATABASE.encode())]


def test_a_password_may_be_an_option() -> None:
    url = f"postgresql://{USER}@{HOST}:{postgres_server().port}/{DATABASE}"
    with wire_to(f"{url}?password={quote(PASSWORD)}") as wire:
        assert told(wire, sql("SELECT 1")) == [(b"1",)]


def test_a_socket_in_a_folder() -> None:
    server = postgres_server()
    with wire_to(f"postgresql://{USER}@/{DATABASE}?host={server.folder}&port={server.port}") as wire:
        assert told(wire, sql("SELECT inet_server_addr() IS NULL")) == [(b"t",)]


def test_settings_of_the_server_may_be_options() -> None:
    with wire_to(postgres_server().url_with(options="-c work_mem=5MB")) as wire:
        assert setting(wire, "work_mem") == "5MB"


def test_tls_with_a_certificate_that_is_checked() -> None:
    with PostgresServer(tls=True) as server:
        with wire_to(server.url) as wire:
            assert wire.pgconn.ssl_in_use
            assert len(told(wire, sql("SELECT repeat('x', 100000) FROM generate_series(1, 100)"))) == 100
        assert "certificate" in tried(server.url.replace(str(server.url.rpartition("sslrootcert=")[2]), "/dev/null"))


def test_wrong_logins_are_told_without_the_password_and_as_permanent() -> None:
    server = postgres_server()
    for url in (
        server.url.replace(quote(PASSWORD, safe=""), "wrong"),
        server.url_with(database="not_there"),
        f"postgresql://{USER}@{HOST}:{server.port}/{DATABASE}",
        f"postgresql://nobody:x@{HOST}:{server.port}/{DATABASE}",
    ):
        with pytest.raises(LinkDown, match="refuses the login") as raised:
            dialect_of(url).dial(10, is_shared=True)
        assert raised.value.fault.is_permanent
        assert raised.value.fault.kind == "login"
        assert PASSWORD not in str(raised.value)


def test_a_server_that_is_not_there_is_told_as_such() -> None:
    port = closed_port()
    assert "can't be reached" in tried(f"postgresql://{HOST}:{port}/db")
    assert "can't be reached" in tried("postgresql://nowhere.invalid/db")


@pytest.mark.parametrize("query, timeout", [("", 0.3), ("?connect_timeout=1", 30.0)])
def test_a_server_that_says_nothing_is_given_up_in_time(query: str, timeout: float) -> None:
    with silent_host() as port:
        started = time.monotonic()
        assert "not made in time" in tried(f"postgresql://{HOST}:{port}/db{query}", timeout)
        assert min(timeout, 1.0) <= time.monotonic() - started < 5.0


def test_a_server_that_is_stopped_is_given_up_in_time() -> None:
    with PostgresServer() as server:
        made = dialect_of(server.url)
        made.dial(10, is_shared=True).close()
        server.pause()
        started = time.monotonic()
        with pytest.raises(LinkDown, match="not made in time"):
            made.dial(0.3, is_shared=True)
        assert time.monotonic() - started < 5.0
        server.resume()


def test_a_server_without_a_connection_left_is_told_as_full() -> None:
    with PostgresServer("max_connections=5", "superuser_reserved_connections=3") as server:
        made = dialect_of(server.url)
        wires = [made.dial(10, is_shared=True) for _ in range(2)]
        with pytest.raises(LinkDown, match="max_connections") as raised:
            made.dial(10, is_shared=True)
        assert raised.value.fault.kind == "full"
        assert not raised.value.fault.is_permanent
        for wire in wires:
            wire.close()


# Several hosts --------------------------------------------------------------------------------------------------------


def several(*ports: int) -> str:
    hosts = ",".join(f"{HOST}:{port}" for port in ports)
    return f"postgresql://{USER}:{quote(PASSWORD, safe='')}@{hosts}/{DATABASE}"


def test_the_next_host_is_tried_if_one_does_not_answer_or_is_not_there() -> None:
    port = postgres_server().port
    with silent_host() as silent, wire_to(several(closed_port(), silent, port), timeout=6.0) as wire:
        assert wire.pgconn.port == str(port).encode()


def test_the_primary_is_found_among_replicas() -> None:
    with PostgresServer() as replica:
        with wire_to(replica.url):
            pass  # it has tables
        replica.make_read_only()
        port = postgres_server().port
        with wire_to(several(replica.port, port)) as wire:
            assert wire.pgconn.port == str(port).encode()
        with wire_to(several(replica.port)) as wire:
            assert told(wire, sql("SELECT pg_is_in_recovery()")) == [(b"t",)]
        assert "no primary" in tried(several(replica.port, closed_port()))
        with wire_to(several(replica.port, port) + "?target_session_attrs=any") as wire:
            assert wire.pgconn.port == str(replica.port).encode()


def test_a_primary_where_transactions_are_read_only_by_default_is_one() -> None:
    with PostgresServer("default_transaction_read_only=on") as server:
        with wire_to(several(closed_port(), server.port)) as wire:
            assert setting(wire, "transaction_read_only") == "off"


def test_a_wrong_login_at_one_host_is_not_permanent_while_others_are_down() -> None:
    url = several(closed_port(), postgres_server().port).replace(quote(PASSWORD, safe=""), "wrong")
    with pytest.raises(LinkDown) as raised:
        dialect_of(url).dial(10, is_shared=True)
    assert not raised.value.fault.is_permanent
    assert "authentication failed" in str(raised.value)


# Engines --------------------------------------------------------------------------------------------------------------


def engine_url(driver: str) -> str:
    return postgres_server().url.replace("postgresql", f"postgresql+{driver}", 1)


def dialect_by(engine: Any) -> Any:
    made: Any = factory_of(engine, {})
    return made.dialect


def test_an_engine_of_psycopg_makes_the_connections_as_it_makes_its_own() -> None:
    engine = sqlalchemy.create_engine(engine_url("psycopg"), connect_args={"application_name": "of the engine"})
    greeted: list[object] = []
    sqlalchemy.event.listen(engine, "connect", lambda connection, record: greeted.append(connection))
    made = dialect_by(engine)
    assert made.where == f"postgresql://{HOST}:{postgres_server().port}/{DATABASE}"
    wire = made.dial(10, is_shared=False)
    assert setting(wire, "application_name") == "of the engine"
    assert len(greeted) == 1
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    assert not wire.is_proxied
    wire.close()
    engine.dispose()


def test_an_engine_whose_events_leave_a_transaction_open_is_taken_over_without_it() -> None:
    engine = sqlalchemy.create_engine(engine_url("psycopg"))
    sqlalchemy.event.listen(engine, "connect", lambda connection, record: connection.execute("SELECT 1"))
    wire = dialect_by(engine).dial(10, is_shared=True)
    assert told(wire, sql("SELECT pg_current_xact_id_if_assigned() IS NULL")) == [(b"t",)]
    assert wire.pgconn.transaction_status == 0
    wire.close()
    engine.dispose()


def test_more_connections_can_be_made_than_the_engines_pool_has() -> None:
    engine = sqlalchemy.create_engine(engine_url("psycopg"), pool_size=1, max_overflow=0, pool_timeout=1)
    made = dialect_by(engine)
    with engine.connect():
        wires = [made.dial(10, is_shared=True) for _ in range(3)]
    assert len({wire.session for wire in wires}) == 3
    for wire in wires:
        wire.close()
    engine.dispose()


def test_an_engine_that_takes_too_long_is_not_waited_for_and_what_it_makes_is_closed() -> None:
    may_go_on, connections = threading.Event(), []

    def slowly(connection: Any, record: object) -> None:
        connections.append(connection.info.backend_pid)
        may_go_on.wait(20)

    engine = sqlalchemy.create_engine(engine_url("psycopg"))
    sqlalchemy.event.listen(engine, "connect", slowly)
    with pytest.raises(LinkDown, match="not made in time"):
        dialect_by(engine).dial(0.5, is_shared=True)
    may_go_on.set()
    (pid,) = connections
    until(lambda: not postgres_server().execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", pid))
    engine.dispose()


def test_what_an_engines_creator_raises_is_told() -> None:
    def broken() -> Any:
        raise LookupError("no ticket for today")

    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=broken)
    with pytest.raises(LinkDown, match="no ticket for today"):
        dialect_by(engine).dial(10, is_shared=True)


def test_of_an_engine_with_another_driver_the_arguments_are_used() -> None:
    engine = sqlalchemy.create_engine(engine_url("psycopg2"))
    wire = dialect_by(engine).dial(10, is_shared=True)
    assert told(wire, sql("SELECT current_user")) == [(USER.encode(),)]
    wire.close()
    engine.dispose()


def test_of_an_engine_of_asyncio_the_arguments_are_used() -> None:
    engine = create_async_engine(engine_url("psycopg"))
    wire = dialect_by(engine).dial(10, is_shared=True)
    assert told(wire, sql("SELECT current_user")) == [(USER.encode(),)]
    wire.close()
    asyncio.run(engine.dispose())
