"""`mysql://`, `mariadb://`, with or without `+pymysql`, or a SQLAlchemy engine whose connections are made again."""

from __future__ import annotations

import functools
import logging
import math
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote

import pymysql

from gripfast.bounded import Calls
from gripfast.core import rules
from gripfast.errors import ConfigurationError
from gripfast.machine import boottime
from gripfast.stores import StoreFactory
from gripfast.stores.mysql import engines, packets, protocol, scripts
from gripfast.stores.mysql.spec import OF_THE_DRIVER
from gripfast.stores.mysql.wire import MysqlWire
from gripfast.stores.options import check, from_url
from gripfast.stores.sql.descriptors import await_answer
from gripfast.stores.sql.engines import arguments as known_arguments
from gripfast.stores.sql.factory import SqlFactory
from gripfast.stores.sql.meeting import meet
from gripfast.stores.sql.permit_ports import PermitScripts
from gripfast.stores.sql.ports import Answer, Fault, LinkDown, Refusal, Rows, Scripts
from gripfast.stores.sql.rw_ports import RWScripts

_log = logging.getLogger("gripfast.connection")

_CHARSET = "utf8mb4"


class MysqlDialect:
    name = "mysql"
    pushes = False
    scripts: Scripts = scripts
    mode = "lease"
    rw_modes: Mapping[str, bool] = {"row": True}

    def __init__(self, where: str, database: str, connect: Callable[[float], Any]) -> None:
        """`connect` gives a connection of PyMySQL that nobody else uses, in so many seconds."""
        self.where = where
        self.database = database
        self._connect = connect
        self._calls: Calls[Any] = Calls(lambda connection: connection.close())

    def dial(self, timeout: float, is_shared: bool, within: float = math.inf) -> MysqlWire:
        """The driver's time-outs are for each byte, and names are looked up without any: they are not relied on."""
        seconds = min(timeout, within)
        until = boottime() + seconds
        try:
            wire = MysqlWire.taken_from(self._calls.run(lambda: self._connect(seconds), seconds))
        except Exception as error:  # of any kind: names that can't be encoded, an engine's own events
            raise LinkDown(protocol.not_connected(self.where, self.database, error)) from None
        try:
            self._begin(wire, timeout, is_shared, until)
        except BaseException:
            wire.close()
            raise
        _log.info("connected to %s", self.where, extra={"gripfast_store": self.where})
        return wire

    def rw_scripts(self) -> RWScripts:
        from gripfast.stores.mysql import rw_scripts

        return rw_scripts

    def permit_scripts(self) -> PermitScripts:
        from gripfast.stores.mysql import permit_scripts

        return permit_scripts

    def refused(self, refusal: Refusal) -> Fault:
        return protocol.refused(self.where, self.database, refusal)

    def _begin(self, wire: MysqlWire, timeout: float, is_shared: bool, until: float) -> None:
        self._answer(wire, packets.ALLOW_SEVERAL_STATEMENTS, timeout, until)
        answer = self._set_up(wire, timeout, is_shared, until)
        variables, (session, birth) = answer[-3].rows, answer[-1].rows[0]
        wire.session, wire.birth = int(session or 0), (birth or b"").decode()
        cluster = None if is_shared else protocol.several_primaries(variables)
        if cluster is not None:
            raise LinkDown(protocol.unfit(self.where, cluster))
        if protocol.logs_statements(variables):
            self._answer(wire, packets.query(scripts.settings_for_statement_log()), timeout, until)
        meet(self, lambda queries: self._asked(wire, packets.query(queries), timeout, until))

    def _set_up(self, wire: MysqlWire, timeout: float, is_shared: bool, until: float) -> list[Rows]:
        try:
            return self._answer(
                wire, packets.query(scripts.settings(timeout, is_shared, scripts.new_birth())), timeout, until
            )
        except LinkDown as down:
            if down.fault.kind != "other":
                raise
        return self._answer(wire, packets.query(scripts.settings(timeout, is_shared, "")), timeout, until)

    def _answer(self, wire: MysqlWire, packet: bytes, timeout: float, until: float) -> list[Rows]:
        answer = self._asked(wire, packet, timeout, until)
        if isinstance(answer, Refusal):
            raise LinkDown(self.refused(answer))
        return answer

    def _asked(self, wire: MysqlWire, packet: bytes, timeout: float, until: float) -> Answer:
        try:
            answer = await_answer(wire, wire.send_packet(packet), until)
        except OSError as error:
            raise LinkDown(protocol.not_connected(self.where, self.database, error)) from None
        if answer is None:
            raise LinkDown(protocol.no_answer(self.where, timeout))
        return answer


def factory(url: SplitResult, options: dict[str, Any]) -> StoreFactory:
    return SqlFactory(dialect(url, options), options)


def factory_of(engine: Any, options: dict[str, Any]) -> StoreFactory:
    """From an Engine or an AsyncEngine: sync and async stores can be made from either."""
    return SqlFactory(dialect_of(engine), options)


def dialect(url: SplitResult, options: dict[str, Any]) -> MysqlDialect:
    """Takes the options of the driver out of `options`."""
    if "@" in url.path or any("@" in name for name in options):
        raise ConfigurationError("the URL can't be read: write / ? # @ in a user name or password as %2F %3F %23 %40")
    if "," in (url.hostname or ""):
        raise ConfigurationError("a MySQL URL names one host: that of the primary, or of a proxy in front of it")
    if str(options.pop("charset", _CHARSET)).lower() != _CHARSET:
        raise ConfigurationError(f"charset must be {_CHARSET}: leave the option out")
    database = unquote(url.path.strip("/"))
    if not database:
        raise ConfigurationError("the URL has no database: write mysql://user:password@host:3306/database")
    given = {name: options.pop(name) for name in sorted(OF_THE_DRIVER.keys() & options)}
    login = _login(url.username and unquote(url.username), url.password and unquote(url.password))
    return _dialect_to(url.hostname, url.port, database, {**given, **login})


def dialect_of(engine: Any) -> MysqlDialect:
    """With PyMySQL its connections are made as the engine makes them, its events and creator included; otherwise what
    it gives to its driver is given to PyMySQL."""
    engine = getattr(engine, "sync_engine", engine)
    if engine.dialect.driver == "pymysql":
        url, pool = engine.url, engine.pool.recreate()
        database = (known_arguments(engine) or {}).get("database") or url.database or ""
        return MysqlDialect(_where(url.host, url.port, database), database, lambda _: _detached(pool))
    settings = engines.settings_of(engine)
    host, port, database = (settings.pop(name, None) for name in ("host", "port", "database"))
    login = _login(settings.pop("user", None), settings.pop("password", None))
    return _dialect_to(host, None if port is None else int(port), database or "", {**settings, **login})


def _dialect_to(host: str | None, port: int | None, database: str, settings: Mapping[str, Any]) -> MysqlDialect:
    settings = _read(settings)
    limit, path = settings.get("connect_timeout"), settings.get("unix_socket")
    if path and not any(name.startswith("ssl") for name in settings):
        settings = {**settings, "ssl_disabled": True}  # nobody listens there

    def connect(timeout: float) -> Any:
        seconds = min(timeout, limit or timeout)
        times = {"connect_timeout": seconds, "read_timeout": timeout, "write_timeout": timeout}
        address = {"host": host, "port": port or 0, "database": database}
        made = {**address, **settings, **times, "charset": _CHARSET, "autocommit": None, "defer_connect": True}
        connection: Any = _Connection(**made)
        if path:
            connection._secure = True  # a password may go through it as it is
        connection.connect(_unix_socket(path, seconds) if path else None)
        return connection

    return MysqlDialect(_where(host, port, database, path), database, connect)


class _Connection(pymysql.Connection):
    def _create_ssl_ctx(self, options: Any) -> ssl.SSLContext:
        """Without any option TLS is used if the server offers it, and nothing is verified. PyMySQL would read all of
        the system's certificates for that, each time, which takes a hundred times as long as to connect."""
        made: ssl.SSLContext = super()._create_ssl_ctx(options) if options else _unverified_tls()  # type: ignore[misc]
        return made


@functools.cache
def _unverified_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _unix_socket(path: str, timeout: float) -> socket.socket:
    """Not left to PyMySQL, which does not close it if nobody listens there."""
    sock = socket.socket(socket.AF_UNIX)
    try:
        sock.settimeout(timeout)
        sock.connect(path)
    except BaseException:
        sock.close()
        raise
    return sock


def _detached(pool: Any) -> Any:
    """A connection that the pool has made and will not see again."""
    checked_out = pool.connect()
    connection = checked_out.driver_connection
    checked_out.detach()
    return connection


def _login(user: str | None, password: str | None) -> dict[str, Any]:
    """The password as bytes: PyMySQL would write it in Latin-1."""
    given = {"user": user, "password": password.encode() if password else None}
    return {name: value for name, value in given.items() if value}


def _read(settings: Mapping[str, Any]) -> dict[str, Any]:
    """An engine of SQLAlchemy may have texts, as its URL does."""
    texts = {name: value for name, value in settings.items() if isinstance(value, str)}
    read = {**settings, **from_url(texts, OF_THE_DRIVER)}
    check(read, OF_THE_DRIVER)
    if "connect_timeout" in read:
        rules.checked_patience("connect_timeout", read["connect_timeout"])
    return read


def _where(host: str | None, port: int | None, database: str | None, path: str | None = None) -> str:
    if path:
        return f"mysql://{path}/{database or ''}"
    name = host or "localhost"
    return f"mysql://{f'[{name}]' if ':' in name else name}:{port or 3306}/{database or ''}"
