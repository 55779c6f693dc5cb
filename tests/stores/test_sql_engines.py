"""Engines of SQLAlchemy with another driver than ours: their arguments are carried over, or refused, never dropped."""

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg2
import pytest
import sqlalchemy
from sqlalchemy.ext.asyncio import create_async_engine

import gripfast
from gripfast import ConfigurationError
from gripfast.stores.mysql import engines as mysql_engines
from gripfast.stores.postgres import engines as postgres_engines
from gripfast.stores.postgres.factory import _defaults
from support.sql_process import DATABASE, HOST, PASSWORD, USER
from support.sql_servers import mariadb_server, postgres_server

ASYNC = {"asyncpg", "aiomysql", "asyncmy", "psycopg"}
"""Of psycopg the one in asyncio: the other makes the connections itself."""


def engine_with(driver: str, query: dict[str, str] | None = None, **words: Any) -> Any:
    """Sync or async; for a server of the tests."""
    is_postgres = driver in ("asyncpg", "psycopg", "psycopg2")
    server, name = (postgres_server(), "postgresql") if is_postgres else (mariadb_server(), "mysql")
    url = sqlalchemy.URL.create(f"{name}+{driver}", USER, PASSWORD, HOST, server.port, DATABASE, query=query or {})
    make: Any = create_async_engine if driver in ASYNC else sqlalchemy.create_engine
    return make(url, **words)


def plain(engine: Any) -> Any:
    return getattr(engine, "sync_engine", engine)


def libpq(engine: Any) -> dict[str, str]:
    settings = postgres_engines.settings_of(plain(engine), _defaults())
    assert settings.pop("password") == PASSWORD
    return settings


def postgres_at_home(**more: str) -> dict[str, str]:
    return {"host": HOST, "port": str(postgres_server().port), "user": USER, "dbname": DATABASE, **more}


POSTGRES: list[tuple[str, dict[str, str], dict[str, Any], dict[str, str]]] = [
    ("psycopg2", {}, {}, {}),
    ("psycopg2", {"sslmode": "verify-ca"}, {"sslrootcert": "/ca"}, {"sslmode": "verify-ca", "sslrootcert": "/ca"}),
    ("psycopg2", {}, {"options": "-cjit=off", "keepalives": 1}, {"options": "-cjit=off", "keepalives": "1"}),
    ("psycopg2", {}, {"cursor_factory": psycopg2.extensions.cursor, "database": "other"}, {"dbname": "other"}),
    ("psycopg", {"sslmode": "require"}, {"prepare_threshold": 3}, {"sslmode": "require"}),
    ("asyncpg", {}, {"command_timeout": 3, "statement_cache_size": 0, "timeout": 9}, {}),
    ("asyncpg", {"ssl": "verify-full"}, {}, {"sslmode": "verify-full"}),
    ("asyncpg", {}, {"ssl": True}, {"sslmode": "verify-full", "sslrootcert": "system"}),
    ("asyncpg", {}, {"ssl": False}, {"sslmode": "disable"}),
    ("asyncpg", {}, {"host": ["a", "b"], "port": [1, 2]}, {"host": "a,b", "port": "1,2"}),
    ("asyncpg", {}, {"server_settings": {"search_path": r"a b, c\d", "jit": "off"}}, {
        "options": r"-csearch_path=a\ b,\ c\\d -cjit=off"
    }),
]  # fmt: skip


@pytest.mark.parametrize(("driver", "query", "connect_args", "expected"), POSTGRES)
def test_what_is_given_to_a_driver_of_postgres_is_given_to_libpq(
    driver: str, query: dict[str, str], connect_args: dict[str, Any], expected: dict[str, str]
) -> None:
    engine = engine_with(driver, query, connect_args=connect_args)
    assert libpq(engine) == postgres_at_home(**expected)


MYSQL: list[tuple[str, dict[str, str], dict[str, Any], dict[str, Any]]] = [
    ("mysqlconnector", {}, {}, {}),
    ("mysqlconnector", {"ssl_ca": "/ca"}, {"ssl_verify_cert": True}, {"ssl_ca": "/ca", "ssl_verify_cert": True}),
    ("mysqlconnector", {}, {"connection_timeout": 3, "sql_mode": "ANSI"}, {"connect_timeout": 3}),
    ("aiomysql", {"ssl_ca": "/ca"}, {}, {"ssl": {"ca": "/ca"}}),
    ("aiomysql", {"charset": "utf8mb4"}, {"unix_socket": "/s", "echo": True}, {"unix_socket": "/s"}),
    ("asyncmy", {}, {"ssl": {"ca": "/ca"}, "init_command": "SET ROLE x"}, {
        "ssl": {"ca": "/ca"}, "init_command": "SET ROLE x"
    }),
    ("asyncmy", {}, {"db": "other"}, {"database": "other"}),
]  # fmt: skip


@pytest.mark.parametrize(("driver", "query", "connect_args", "expected"), MYSQL)
def test_what_is_given_to_a_driver_of_mysql_is_given_to_pymysql(
    driver: str, query: dict[str, str], connect_args: dict[str, Any], expected: dict[str, Any]
) -> None:
    engine = engine_with(driver, query, connect_args=connect_args)
    settings = mysql_engines.settings_of(plain(engine))
    at_home = {"host": HOST, "port": mariadb_server().port, "user": USER, "password": PASSWORD, "database": DATABASE}
    assert settings == at_home | expected


CONTEXT = ssl.create_default_context()
REFUSED: list[tuple[str, str, Any]] = [
    ("psycopg2", "connection_factory", psycopg2.extensions.connection),
    ("psycopg2", "replication", "database"),
    ("psycopg", "made_up", 1),
    ("asyncpg", "ssl", CONTEXT),
    ("asyncpg", "ssl", "made up"),
    ("asyncpg", "direct_tls", True),
    ("asyncpg", "password", lambda: "a secret"),
    ("asyncpg", "server_settings", "search_path=a"),
    ("asyncpg", "sslmode", "require"),
    ("aiomysql", "ssl", True),
    ("aiomysql", "auth_plugin", "mysql_clear_password"),
    ("mysqlconnector", "tls_versions", ["TLSv1.3"]),
    ("mysqlconnector", "option_files", "/etc/my.cnf"),
]


@pytest.mark.parametrize(("driver", "argument", "value"), REFUSED)
def test_an_argument_that_can_not_be_carried_over_is_refused_by_its_name(
    driver: str, argument: str, value: Any
) -> None:
    engine = engine_with(driver, connect_args={argument: value})
    with pytest.raises(ConfigurationError, match=f"argument '{argument}' of .* Pass connect\\(\\) a URL") as refusal:
        gripfast.connect(engine)
    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize("driver", ["psycopg2", "asyncpg", "aiomysql", "mysqlconnector"])
def test_an_engine_with_a_creator_or_events_of_its_own_is_refused(driver: str) -> None:
    with pytest.raises(ConfigurationError, match="the engine's creator function"):
        gripfast.connect(engine_with(driver, creator=lambda: None))
    if driver in ASYNC:
        with pytest.raises(ConfigurationError, match="the engine's creator function"):
            gripfast.connect(engine_with(driver, async_creator=lambda: None))
    for event in ("connect", "do_connect"):
        engine = engine_with(driver)
        sqlalchemy.event.listen(plain(engine), event, lambda *given: None)
        with pytest.raises(ConfigurationError, match="events for new connections"):
            gripfast.connect(engine)


DRIVERS = ["psycopg2", "psycopg", "asyncpg", "aiomysql", "asyncmy", "mysqlconnector"]


@pytest.mark.parametrize("driver", DRIVERS)
def test_both_colours_use_the_engine(driver: str) -> None:
    engine = engine_with(driver)
    prefix = f"{id(engine)}:"
    with gripfast.connect(engine, prefix=prefix) as client, client.lock("job") as lease:
        assert lease.held

    async def use() -> None:
        async with gripfast.connect_async(engine, prefix=prefix) as client, client.lock("job") as lease:
            assert lease.held

    asyncio.run(use())


@contextmanager
def schema(name: str) -> Iterator[str]:
    server = postgres_server()
    server.execute(f"CREATE SCHEMA {name} AUTHORIZATION {USER}")
    try:
        yield name
    finally:
        server.execute(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.parametrize("driver", ["psycopg2", "asyncpg"])
def test_the_tables_are_in_the_schema_of_the_engine(driver: str) -> None:
    asked = "SELECT count(*) FROM pg_tables WHERE schemaname = %s AND tablename LIKE 'gripfast%%'"
    with schema(f"of_the_engine_{driver}") as name:
        told: dict[str, Any] = {
            "psycopg2": {"options": f"-csearch_path={name}"},
            "asyncpg": {"server_settings": {"search_path": name}},
        }
        with gripfast.connect(engine_with(driver, connect_args=told[driver])) as client, client.lock("job"):
            assert postgres_server().execute(asked, name) == [(8,)]


@pytest.mark.parametrize(
    ("driver", "query"), [("psycopg2", {"sslmode": "verify-full"}), ("asyncpg", {"ssl": "verify-full"})]
)
def test_a_server_that_would_not_do_for_the_engine_does_not_do_for_locks(driver: str, query: dict[str, str]) -> None:
    """It has no TLS."""
    with gripfast.connect(engine_with(driver, query), connect_patience=0) as client:
        with pytest.raises(gripfast.StoreUnavailable, match=r"SSL|root\.crt|certificate"):
            client.lock("job").acquire()


def test_the_database_of_an_engine_is_that_of_its_arguments() -> None:
    """User-level locks are the whole server's: their keys have the name of the database in them."""
    url = sqlalchemy.URL.create("mysql+pymysql", USER, PASSWORD, HOST, mariadb_server().port)
    engine = sqlalchemy.create_engine(url, connect_args={"database": DATABASE})
    with (
        gripfast.connect(engine, mode="advisory", prefix="engine:") as mine,
        gripfast.connect(mariadb_server().url_with(mode="advisory", prefix="engine:")) as other,
        mine.lock("job"),
    ):
        assert other.lock("job").try_acquire() is None
    engine.dispose()
