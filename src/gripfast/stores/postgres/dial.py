"""How a connection begins: libpq makes it (names, TLS, passwords), then its session is set up in one round trip.

Nothing of this is left to libpq's waiting: a host that does not answer has its share of the time and no more. Nor is
the look-up of a host's name, for which libpq would wait as long as the system does: it gets the addresses.
"""

from __future__ import annotations

import logging
import math
import socket
from collections.abc import Callable, Mapping, Sequence

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.pq import PollingStatus

from gripfast.bounded import Calls
from gripfast.machine import boottime
from gripfast.stores.postgres import protocol, scripts
from gripfast.stores.postgres.wire import PostgresWire
from gripfast.stores.sql.descriptors import await_answer, is_ready
from gripfast.stores.sql.meeting import meet
from gripfast.stores.sql.permit_ports import PermitScripts
from gripfast.stores.sql.ports import Answer, Fault, LinkDown, Refusal, Scripts
from gripfast.stores.sql.rw_ports import RWScripts
from gripfast.stores.sql.statement import Query, Statement, Value

_log = logging.getLogger("gripfast.connection")

Connect = Callable[[float], PostgresWire]
"""Makes a connection until then, by boottime(). Raises NoConnection."""

_SETTINGS: Mapping[str, str] = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "client_encoding": "UTF8",
    "idle_in_transaction_session_timeout": "0",
    "jit": "off",
}
_NEWER_SETTINGS: Mapping[int, Mapping[str, str]] = {
    140000: {"idle_session_timeout": "0"},
    170000: {"transaction_timeout": "0"},
}

_APPLICATION_NAME = "coalesce(nullif(current_setting('application_name'), ''), 'gripfast')"

_LIMIT = Statement("SELECT set_config('statement_timeout', :limit, true), set_config('lock_timeout', :limit, true)")
_LEAVE_WITH_CLIENT = Statement("SELECT set_config('client_connection_check_interval', '500ms', false)")
_CHECKS_CLIENTS_SINCE = 140000


class NoConnection(Exception):
    """Why each of the hosts could not be reached, in libpq's words; None for one that was not made in time."""

    def __init__(self, *reasons: str | None) -> None:
        super().__init__(*reasons)
        self.reasons = reasons


class PostgresDialect:
    """One server, or the primary of several."""

    name = "postgresql"
    pushes = True
    scripts: Scripts = scripts
    mode = "lease"
    rw_modes: Mapping[str, bool] = {"advisory": True, "row": True}

    def __init__(self, where: str, database: str, connect: Connect) -> None:
        self.where = where
        self.database = database
        self._connect = connect

    def dial(self, timeout: float, is_shared: bool, within: float = math.inf) -> PostgresWire:
        deadline = boottime() + min(timeout, within)
        try:
            wire = self._connect(deadline)
        except NoConnection as error:
            raise LinkDown(protocol.not_connected(self.where, error.reasons)) from None
        try:
            self._set_up(wire, _milliseconds(timeout), is_shared, deadline)
            meet(self, lambda queries: self._run(wire, queries, deadline))
        except BaseException:
            wire.close()
            raise
        _log.info("connected to %s", self.where, extra={"gripfast_store": self.where})
        return wire

    def permit_scripts(self) -> PermitScripts:
        from gripfast.stores.postgres import permit_scripts

        return permit_scripts

    def rw_scripts(self) -> RWScripts:
        from gripfast.stores.postgres import rw_scripts

        return rw_scripts

    def refused(self, refusal: Refusal) -> Fault:
        return protocol.refused(self.where, refusal)

    def _set_up(self, wire: PostgresWire, limit: str, is_shared: bool, deadline: float) -> None:
        told_pid = wire.session
        version = wire.pgconn.server_version
        answer = self._run(wire, [_settings(version, told_pid, limit if is_shared else "0")], deadline)
        if isinstance(answer, Refusal):
            raise LinkDown(self.refused(answer))
        pid, birth, *_ = answer[0].rows[0]
        wire.session, wire.birth = int(pid or 0), (birth or b"").decode()
        wire.is_proxied = wire.session != told_pid
        wire.prepares = not wire.is_proxied
        if wire.is_proxied and not is_shared:
            raise LinkDown(protocol.behind_proxy(self.where))
        if wire.is_proxied:
            wire.before = Query(_LIMIT, {"limit": limit})
        elif not is_shared and version >= _CHECKS_CLIENTS_SINCE:
            self._run(wire, [Query(_LEAVE_WITH_CLIENT)], deadline)  # refused by servers whose system can't tell

    def _run(self, wire: PostgresWire, queries: Sequence[Query], deadline: float) -> Answer:
        try:
            answer = await_answer(wire, wire.send(queries), deadline)
        except OSError as error:
            raise LinkDown(protocol.not_connected(self.where, [str(error)])) from None
        if answer is None:
            raise LinkDown(protocol.not_connected(self.where, [None]))
        return answer


Addresses = list[str]


def connect_to_one_of(
    hosts: Sequence[Mapping[str, str]], patience: float, lookups: Calls[Addresses], deadline: float
) -> PostgresWire:
    """In that order, each by its settings; each has its share of the time that is left, and at most `patience`."""
    reasons: list[str | None] = []
    for count in range(len(hosts), 0, -1):
        now = boottime()
        try:
            return _connected(hosts[-count], lookups, now + min(patience, (deadline - now) / count))
        except NoConnection as error:
            reasons += error.reasons
    raise NoConnection(*reasons)


def _connected(settings: Mapping[str, str], lookups: Calls[Addresses], deadline: float) -> PostgresWire:
    conninfo = make_conninfo(**{**settings, **_addresses(settings, lookups, deadline)}).encode()
    wire = PostgresWire(pq.PGconn.connect_start(conninfo))
    try:
        while (status := wire.pgconn.connect_poll()) != PollingStatus.OK:
            if status == PollingStatus.FAILED:
                raise NoConnection(wire.pgconn.get_error_message())
            if not is_ready(wire.pgconn.socket, deadline - boottime(), status == PollingStatus.WRITING):
                raise NoConnection(None)
        wire.begin()
    except (OSError, psycopg.Error) as error:
        wire.close()
        raise NoConnection(str(error)) from None
    except BaseException:
        wire.close()
        raise
    return wire


def _addresses(settings: Mapping[str, str], lookups: Calls[Addresses], deadline: float) -> dict[str, str]:
    """Of the host, if it has a name that is to be looked up; the name stays, for TLS to be verified by."""
    host = settings.get("host", "")
    if not host or host[0] in "/@" or settings.get("hostaddr") or _is_address(host):
        return {}

    def look_up() -> Addresses:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in found))

    try:
        addresses = lookups.run(look_up, deadline - boottime())
    except TimeoutError:
        raise NoConnection(f'could not translate host name "{host}" to address: no answer in time') from None
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise NoConnection(f'could not translate host name "{host}" to address: {reason}') from None
    port = settings.get("port", "")
    lists = {"host": [host] * len(addresses), "hostaddr": addresses, "port": [port] * len(addresses) if port else []}
    return {name: ",".join(values) for name, values in lists.items() if values}


def _is_address(host: str) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.inet_pton(family, host.partition("%")[0])
    except (OSError, ValueError):
        return False
    return True


def _settings(version: int, told_pid: int, limit: str) -> Query:
    """What a session needs whatever the server, the database or the role has for a default. Nothing is set in one that
    is not ours alone: its next user is somebody else."""
    values: dict[str, Value] = {**_SETTINGS, "statement_timeout": limit, "lock_timeout": limit}
    for since, settings in _NEWER_SETTINGS.items():
        values |= settings if version >= since else {}
    columns = ", ".join(
        f"CASE WHEN pg_backend_pid() = :told_pid::int THEN set_config('{name}', {wanted}, false) END"
        for name, wanted in {**{name: f":{name}" for name in values}, "application_name": _APPLICATION_NAME}.items()
    )
    birth = "SELECT extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()"
    return Query(Statement(f"SELECT pg_backend_pid(), ({birth}), {columns}"), values | {"told_pid": told_pid})


def _milliseconds(seconds: float) -> str:
    return str(min(max(1, math.ceil(seconds * 1000)), 2**31 - 1))
