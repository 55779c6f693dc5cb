"""`postgresql://`, by libpq's rules, or an Engine of SQLAlchemy whose connections, or at least arguments, are used.

Several hosts may be named, postgresql://host1,host2:5433/database: the first of them that is a primary is used.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from gripfast.bounded import Calls
from gripfast.errors import ConfigurationError
from gripfast.machine import boottime
from gripfast.stores import StoreFactory
from gripfast.stores.postgres import engines
from gripfast.stores.postgres.dial import Connect, NoConnection, PostgresDialect, connect_to_one_of
from gripfast.stores.postgres.wire import PostgresWire
from gripfast.stores.sql.factory import SqlFactory

_NOT_OURS = {"replication"}
"""Keywords of libpq for connections that take no statements."""
_PER_HOST = ("host", "hostaddr", "port")
_DEFAULT_PORT = "5432"
_LIBPQ_WITH_PRIMARY = 140000


def factory(url: SplitResult, options: dict[str, Any]) -> StoreFactory:
    return SqlFactory(dialect(url, options), options)


def factory_of(engine: Any, options: dict[str, Any]) -> StoreFactory:
    """From an Engine or AsyncEngine. Connections of psycopg are made as the engine makes its own: its creator, its
    events. Of an engine with another driver what it gives to that is used."""
    engine = getattr(engine, "sync_engine", engine)
    if engine.dialect.driver not in ("psycopg", "psycopg_async") or engine.dialect.is_async:
        settings = engines.settings_of(engine, _defaults().keys() - _NOT_OURS)
        return SqlFactory(_dialect(_checked(settings)), options)
    settings = _settings_of(engine)
    connect = functools.partial(_connect_by, engine.pool.recreate(), Calls(PostgresWire.close))
    return SqlFactory(PostgresDialect(_where(settings), _database(settings), connect), options)


def dialect(url: SplitResult, options: dict[str, Any]) -> PostgresDialect:
    """Takes what libpq knows out of the options."""
    return _dialect(_settings(url, options))


def _dialect(settings: Mapping[str, str]) -> PostgresDialect:
    return PostgresDialect(_where(settings), _database(settings), _connect_with(settings))


# -- settings ------------------------------------------------------------------------------------------------------


def _settings(url: SplitResult, options: dict[str, Any]) -> dict[str, str]:
    """What libpq gets, taken out of the options."""
    if "@" in url.path or any("@" in name for name in options) or url.netloc.count("@") > 1:
        raise ConfigurationError("the URL can't be read: write / ? # @ in a user name or password as %2F %3F %23 %40")
    settings = _parsed(url)
    if str(options.get("ssl")).lower() == "true":  # as libpq, and Java, have it
        settings["sslmode"] = "require"
        del options["ssl"]
    known = _defaults().keys() - _NOT_OURS
    settings |= {name: str(options.pop(name)) for name in list(options) if name in known}
    return _checked(settings)


def _parsed(url: SplitResult) -> dict[str, str]:
    """By libpq itself. What it says of a URL that it can't read may hold the password."""
    try:
        found = pq.Conninfo.parse(f"postgresql://{url.netloc}{url.path}".encode())
    except psycopg.Error:
        raise ConfigurationError(
            "the URL can't be read: write it as postgresql://user:password@host:port/database, and % as %25"
        ) from None
    return {option.keyword.decode(): option.val.decode() for option in found if option.val is not None}


def _settings_of(engine: Any) -> dict[str, str]:
    """Of an engine's URL, in libpq's words, to tell where it is."""
    url = engine.url
    known = _defaults().keys() - _NOT_OURS
    settings = {name: ",".join(value) if isinstance(value, tuple) else value for name, value in url.query.items()}
    settings = {name: value for name, value in settings.items() if name in known}
    login = {"host": url.host, "port": url.port, "user": url.username, "password": url.password, "dbname": url.database}
    return _checked(settings | {name: str(value) for name, value in login.items() if value is not None})


def _checked(settings: dict[str, str]) -> dict[str, str]:
    ports = settings.get("port", "")
    if not all(port.isdecimal() for port in ports.split(",") if port):
        raise ConfigurationError("the URL can't be read: its port must be a number")
    if not settings.get("connect_timeout", "0").removeprefix("-").isdecimal():
        raise ConfigurationError(
            f"connect_timeout must be a whole number of seconds, not {settings['connect_timeout']!r}"
        )
    if "," in _or_default(settings, "host") + _or_default(settings, "hostaddr"):
        # read-write would also refuse a primary where transactions are read only unless they say otherwise
        attribute = "primary" if pq.version() >= _LIBPQ_WITH_PRIMARY else "read-write"
        settings.setdefault("target_session_attrs", attribute)
    try:
        make_conninfo(**settings)
    except psycopg.Error as error:
        raise ConfigurationError(f"libpq refuses these options: {error}") from None
    return settings


def _defaults() -> Mapping[str, str]:
    """libpq's keywords, with what the environment or libpq itself sets them to."""
    return {option.keyword.decode(): (option.val or b"").decode() for option in pq.Conninfo.get_defaults()}


def _or_default(settings: Mapping[str, str], keyword: str) -> str:
    return settings.get(keyword) or _defaults()[keyword]


def _where(settings: Mapping[str, str]) -> str:
    hosts = (_or_default(settings, "host") or _or_default(settings, "hostaddr")).split(",")
    ports = _or_default(settings, "port").split(",")
    ports = ports * len(hosts) if len(ports) == 1 else ports
    named = [f"[{host}]" if ":" in host else host for host in hosts]
    places = ",".join(f"{host}:{port or _DEFAULT_PORT}" for host, port in zip(named, ports, strict=False))
    return f"postgresql://{places}/{_database(settings)}"


def _database(settings: Mapping[str, str]) -> str:
    return _or_default(settings, "dbname") or _or_default(settings, "user")


# -- connections ---------------------------------------------------------------------------------------------------


def _connect_with(settings: Mapping[str, str]) -> Connect:
    patience = int(settings.get("connect_timeout") or 0)
    known = {name: value for name in _PER_HOST if (value := _or_default(settings, name))}
    if _or_default(settings, "service"):  # a file of libpq's own has them
        known = {}
    each = _split_hosts({**known, **settings, "client_encoding": "UTF8"})
    return functools.partial(connect_to_one_of, each, patience if patience > 0 else math.inf, Calls(lambda _: None))


def _split_hosts(settings: dict[str, str]) -> list[dict[str, str]]:
    """One for each host, so that one that does not answer can't use up the time of the next."""
    lists = {name: value.split(",") for name in _PER_HOST if (value := settings.get(name))}
    count = max((len(values) for values in lists.values()), default=1)
    if any(len(values) not in (1, count) for values in lists.values()):
        raise ConfigurationError(
            "the URL has a different number of ports than hosts: give one port for all hosts, or one for each"
        )
    return [
        settings | {name: values[index] if len(values) == count else values[0] for name, values in lists.items()}
        for index in range(count)
    ]


def _connect_by(pool: Any, calls: Calls[PostgresWire], deadline: float) -> PostgresWire:
    """As the engine does, which has its own idea of how long that may take."""
    try:
        return calls.run(lambda: _wire_of(pool), deadline - boottime())
    except Exception as error:  # of any kind: the engine's creator and events are the application's
        raise NoConnection(str(error) or (None if isinstance(error, TimeoutError) else type(error).__name__)) from None


def _wire_of(pool: Any) -> PostgresWire:
    """A connection that the pool forgets, and psycopg's own object, too: what is left is libpq's."""
    pooled = pool.connect()
    pooled.detach()
    connection = pooled.dbapi_connection
    if connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
        connection.rollback()
    wire = PostgresWire(connection.pgconn)
    del connection.pgconn
    wire.begin()
    return wire
