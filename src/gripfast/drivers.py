"""The drivers of databases: which one a connection of the caller's is of, and how a statement is run on it.

A connection is recognised by the name of its class, so no driver is imported to find out. The driver of a connection
that was passed in is imported already.

SQL is written once, with `:name` where a value goes, no other colon (CAST, not `::`) and no percent sign. Every request
is a coroutine: with a blocking connection it blocks and never suspends, so that one `send(None)` runs it to its end.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from collections.abc import Awaitable, Callable, Container, Mapping
from typing import Any, NamedTuple

from gripfast.errors import ConfigurationError

Value = int | str
_SQLITE = ("sqlite3.Connection",)
LEGACY_TRANSACTION_CONTROL = -1
"""Of sqlite3, from Python 3.12 on; until then there is nothing else."""
ENGINES = {
    "postgresql": ("psycopg", "psycopg2", "asyncpg"),
    "mysql": ("PyMySQL", "mysqlclient", "mysql-connector", "aiomysql", "asyncmy"),
    "sqlite": ("sqlite3",),
}
"""With the drivers whose connections are known."""
_PSYCOPG = ("psycopg.Connection", "psycopg.AsyncConnection")
_DJANGO = ("django.db.backends.base.base.BaseDatabaseWrapper", "django.utils.connection.ConnectionProxy")
_PLACE = re.compile(r":([a-z_]+)")


class Result(NamedTuple):
    rows: list[tuple[Any, ...]]
    affected: int
    """Rows written, as the driver counts them."""


class CallerConnection(NamedTuple):
    """A connection of somebody else's, as far as it is used here."""

    engine: str
    """postgresql, mysql (MariaDB, too) or sqlite."""
    keeps_transaction: bool
    """A transaction is open, or the next statement opens one; otherwise each commits by itself."""
    run: Callable[[str, Mapping[str, Value]], Awaitable[Result]]


class _Driver(NamedTuple):
    engine: str
    is_async: bool
    run: Callable[[_Driver, Any, str, Mapping[str, Value]], Awaitable[Result]]
    has_begun: Callable[[Any], bool]
    """Whether a transaction is open now."""
    cursor: Callable[[Any], Any] = lambda connection: connection.cursor()
    """A plain one: whatever rows the caller's own cursors give, this one's are tuples."""


def is_async(connection: object) -> bool | None:
    """Its colour; None if nothing is known about its class."""
    connection = _unwrapped(connection)
    if is_a(connection, _SQLALCHEMY):
        return is_a(connection, _SQLALCHEMY_ASYNC)
    driver = _driver_of(connection)
    return driver and driver.is_async


async def recognised(connection: Any) -> CallerConnection:
    """What to do with the connection. A session of SQLAlchemy's is asked for the connection that it works on."""
    connection = _unwrapped(connection)
    if is_a(connection, _SQLALCHEMY):
        return await _caller_of_sqlalchemy(connection)
    driver = _driver_of(connection)
    if driver is None:
        raise ConfigurationError(f"a {full_name(type(connection))} is not supported: use a connection of {known()}")
    if _is_pipelined(connection):
        await driver.run(driver, connection, "SELECT 1", {})  # whether it has begun is known when it is answered
    keeps = driver.has_begun(connection) or not _commits_each(connection)
    return CallerConnection(driver.engine, keeps, functools.partial(driver.run, driver, connection))


def known(engines: Container[str] = ENGINES) -> str:
    """Whose connections of these engines are known, for messages."""
    drivers = [driver for engine, drivers in ENGINES.items() if engine in engines for driver in drivers]
    return f"{', '.join(drivers)}, SQLAlchemy and Django"


def code_of(error: Exception) -> str:
    """The engine's code of an error, whichever driver tells it: SQLSTATE of PostgreSQL, number of MySQL; or nothing."""
    origin = getattr(error, "orig", None) or error
    number = getattr(origin, "errno", None) or next(iter(origin.args), None)
    if isinstance(number, int):
        return str(number)
    return str(getattr(origin, "sqlstate", None) or getattr(origin, "pgcode", None) or "")


def is_a(thing: object, names: Container[str]) -> bool:
    """Whether the thing is of one of these classes, or of a class derived from one."""
    return any(full_name(cls) in names for cls in type(thing).__mro__)


def full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _unwrapped(connection: Any) -> Any:
    """Django's `connection`, and those of its `connections`, have the driver's inside."""
    if not is_a(connection, _DJANGO):
        return connection
    connection.ensure_connection()
    return connection.connection


# -- drivers -----------------------------------------------------------------------------------------------------------


async def _run(driver: _Driver, connection: Any, sql: str, values: Mapping[str, Value]) -> Result:
    cursor = driver.cursor(connection)
    try:
        with _answered(connection):
            cursor.execute(_percent(sql), values)
        return Result(list(cursor.fetchall()) if cursor.description else [], cursor.rowcount)
    finally:
        cursor.close()


async def _run_async(driver: _Driver, connection: Any, sql: str, values: Mapping[str, Value]) -> Result:
    async with driver.cursor(connection) as cursor:
        async with _answered(connection):
            await cursor.execute(_percent(sql), values)
        return Result(list(await cursor.fetchall()) if cursor.description else [], cursor.rowcount)


async def _run_sqlite(driver: _Driver, connection: Any, sql: str, values: Mapping[str, Value]) -> Result:
    cursor = connection.cursor()
    cursor.row_factory = None
    cursor.execute(sql, values)
    return Result(cursor.fetchall(), cursor.rowcount)


async def _run_asyncpg(driver: _Driver, connection: Any, sql: str, values: Mapping[str, Value]) -> Result:
    text, names = _numbered(sql)
    rows = [tuple(row) for row in await connection.fetch(text, *(values[name] for name in names))]
    return Result(rows, len(rows))


@functools.cache
def _percent(sql: str) -> str:
    return _PLACE.sub(r"%(\1)s", sql)


@functools.cache
def _numbered(sql: str) -> tuple[str, list[str]]:
    names = list(dict.fromkeys(_PLACE.findall(sql)))
    return _PLACE.sub(lambda found: f"${names.index(found[1]) + 1}", sql), names


def _is_pipelined(connection: Any) -> bool:
    """In a pipeline of psycopg statements are not answered one by one."""
    return is_a(connection, _PSYCOPG) and bool(connection.pgconn.pipeline_status)


def _answered(connection: Any) -> Any:
    """What is executed in it is answered when it is left: by a nested pipeline, if there is one already."""
    return connection.pipeline() if _is_pipelined(connection) else contextlib.nullcontext()


def _psycopg_cursor(kind: str) -> Callable[[Any], Any]:
    def cursor(connection: Any) -> Any:
        psycopg = importlib.import_module("psycopg")
        return getattr(psycopg, kind)(connection, row_factory=psycopg.rows.tuple_row)

    return cursor


def _plain_cursor(package: str) -> Callable[[Any], Any]:
    return lambda connection: connection.cursor(importlib.import_module(f"{package}.cursors").Cursor)


def _psycopg2_cursor(connection: Any) -> Any:
    return connection.cursor(cursor_factory=importlib.import_module("psycopg2.extensions").cursor)


def _commits_each(connection: Any) -> bool:
    """Each statement, unless a transaction was begun: the answer of drivers and of SQLAlchemy's adapters to them."""
    if is_a(connection, _SQLITE):
        return _sqlite_commits_each(connection)
    told = getattr(connection, "autocommit", None)
    if isinstance(told, bool):
        return told
    ask = getattr(connection, "get_autocommit", None)
    return bool(ask()) if ask else True


def _sqlite_commits_each(connection: Any) -> bool:
    if getattr(connection, "autocommit", LEGACY_TRANSACTION_CONTROL) != LEGACY_TRANSACTION_CONTROL:
        return True  # not legacy: a transaction is open already, or the connection commits by itself
    return connection.isolation_level is None


def _postgres_has_begun(connection: Any) -> bool:
    return bool(connection.info.transaction_status)  # 0 is idle, both in psycopg and in psycopg2


def _mysql_has_begun(connection: Any) -> bool:
    return bool(connection.server_status & 1)  # SERVER_STATUS_IN_TRANS


def _asyncpg_has_begun(connection: Any) -> bool:
    return bool(connection.is_in_transaction())


_ASYNCPG = _Driver("postgresql", True, _run_asyncpg, _asyncpg_has_begun)
_DRIVERS: dict[str, _Driver] = {
    "sqlite3.Connection": _Driver("sqlite", False, _run_sqlite, lambda connection: connection.in_transaction),
    "psycopg.Connection": _Driver("postgresql", False, _run, _postgres_has_begun, _psycopg_cursor("Cursor")),
    "psycopg.AsyncConnection": _Driver(
        "postgresql", True, _run_async, _postgres_has_begun, _psycopg_cursor("AsyncCursor")
    ),
    "psycopg2.extensions.connection": _Driver("postgresql", False, _run, _postgres_has_begun, _psycopg2_cursor),
    "asyncpg.connection.Connection": _ASYNCPG,
    "asyncpg.pool.PoolConnectionProxy": _ASYNCPG,
    "pymysql.connections.Connection": _Driver("mysql", False, _run, _mysql_has_begun, _plain_cursor("pymysql")),
    "MySQLdb.connections.Connection": _Driver("mysql", False, _run, lambda _: False, _plain_cursor("MySQLdb")),
    "mysql.connector.abstracts.MySQLConnectionAbstract": _Driver(
        "mysql",
        False,
        _run,
        lambda connection: connection.in_transaction,
        lambda connection: connection.cursor(raw=False),
    ),
    "aiomysql.connection.Connection": _Driver("mysql", True, _run_async, _mysql_has_begun, _plain_cursor("aiomysql")),
    "asyncmy.connection.Connection": _Driver("mysql", True, _run_async, _mysql_has_begun, _plain_cursor("asyncmy")),
}


def _driver_of(connection: object) -> _Driver | None:
    names = map(full_name, type(connection).__mro__)
    return next((_DRIVERS[name] for name in names if name in _DRIVERS), None)


# -- SQLAlchemy --------------------------------------------------------------------------------------------------------

_SQLALCHEMY_ASYNC = {
    "sqlalchemy.ext.asyncio.engine.AsyncConnection",
    "sqlalchemy.ext.asyncio.session.AsyncSession",
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session",
}
_SQLALCHEMY_CONNECTIONS = {"sqlalchemy.engine.base.Connection", "sqlalchemy.ext.asyncio.engine.AsyncConnection"}
_SQLALCHEMY = {
    "sqlalchemy.orm.session.Session",
    "sqlalchemy.orm.scoping.scoped_session",
    *_SQLALCHEMY_CONNECTIONS,
    *_SQLALCHEMY_ASYNC,
}


async def _caller_of_sqlalchemy(given: Any) -> CallerConnection:
    connection = given
    if not is_a(given, _SQLALCHEMY_CONNECTIONS):
        connection = await given.connection() if is_a(given, _SQLALCHEMY_ASYNC) else given.connection()
    plain = getattr(connection, "sync_connection", connection)
    name = plain.dialect.name
    engine = {"mariadb": "mysql"}.get(name, name)
    lent = plain.connection
    driver = _driver_of(lent.driver_connection)
    commits_each = _sqlite_commits_each if engine == "sqlite" else _commits_each
    keeps = not commits_each(lent.dbapi_connection) or (driver is not None and driver.has_begun(lent.driver_connection))
    return CallerConnection(engine, keeps, functools.partial(_run_sqlalchemy, connection))


async def _run_sqlalchemy(connection: Any, sql: str, values: Mapping[str, Value]) -> Result:
    sqlalchemy = importlib.import_module("sqlalchemy")
    # Said to be large: to PostgreSQL it would send them as 32 bits otherwise.
    large = [
        sqlalchemy.bindparam(name, type_=sqlalchemy.BigInteger) for name in values if isinstance(values[name], int)
    ]
    result = connection.execute(sqlalchemy.text(sql).bindparams(*large), values)
    if is_a(connection, _SQLALCHEMY_ASYNC):
        result = await result
    return Result([tuple(row) for row in result] if result.returns_rows else [], result.rowcount)
