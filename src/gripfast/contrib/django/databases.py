"""From an alias of `DATABASES` to the store in that database: what Django gives to its driver, in Gripfast's words.

Gripfast makes connections of its own, so `CONN_MAX_AGE`, `CONN_HEALTH_CHECKS` and Django's pool do not matter here.
SQLite has no server: the locks of such a database are in a file beside it, and those of one in memory are in memory.
Nothing is connected.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils.connection import ConnectionDoesNotExist

LOCKS_BESIDE = ".locks"
"""How the file of locks beside a SQLite database ends."""

_LIBPQ = {
    "application_name", "channel_binding", "connect_timeout", "dbname", "gssencmode", "gsslib", "host", "hostaddr",
    "keepalives", "keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts",
    "options", "passfile", "password", "port", "require_auth", "requirepeer", "service", "sslcert", "sslcertmode",
    "sslcompression", "sslcrl", "sslcrldir", "sslkey", "sslmode", "sslnegotiation", "sslpassword", "sslrootcert",
    "sslsni", "ssl_max_protocol_version", "ssl_min_protocol_version", "target_session_attrs", "tcp_user_timeout",
    "user",
}  # fmt: skip
_PYMYSQL = {
    "bind_address", "connect_timeout", "program_name", "read_default_file", "read_default_group", "server_public_key",
    "ssl", "ssl_ca", "ssl_cert", "ssl_disabled", "ssl_key", "ssl_key_password", "ssl_verify_cert",
    "ssl_verify_identity", "unix_socket",
}  # fmt: skip
_OF_QUERIES = {
    "autocommit", "charset", "client_encoding", "client_flag", "collation", "compress", "context", "conv",
    "cursor_factory", "cursorclass", "init_command", "local_infile", "prepare_threshold", "read_timeout", "row_factory",
    "sql_mode", "time_zone", "use_unicode", "write_timeout",
}  # fmt: skip
"""How statements are run and rows returned. Sessions of Gripfast have settings of their own for that."""
_SSL_MODES: Mapping[str, Mapping[str, object]] = {
    "DISABLED": {"ssl_disabled": True},
    "PREFERRED": {},
    "VERIFY_CA": {"ssl_verify_cert": True},
    "VERIFY_IDENTITY": {"ssl_verify_cert": True, "ssl_verify_identity": True},
}
"""mysqlclient's word for what are switches in PyMySQL."""


class Place(NamedTuple):
    """What `connect()` is to be called with."""

    target: object
    options: Mapping[str, Any] = {}


def place_of(alias: str, mode: str | None = None) -> Place:
    """ImproperlyConfigured if Gripfast can't keep locks there."""
    connection = connection_of(alias)
    if connection.vendor not in _PLACES:
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is of the vendor {connection.vendor!r}, where Gripfast can't keep locks: it can in "
            "PostgreSQL, MariaDB, MySQL and SQLite. Use another DATABASE, or a URL"
        )
    return _PLACES[connection.vendor](connection, mode)


def address_of(alias: str) -> tuple[object, ...]:
    """What changes if the alias means another database. Not the password: some backends make one for each
    connection."""
    settings = connection_of(alias).settings_dict
    return tuple(settings.get(key) for key in ("ENGINE", "HOST", "PORT", "NAME"))


def connection_of(alias: str) -> Any:
    """This thread's own."""
    try:
        return connections[alias]
    except ConnectionDoesNotExist:
        raise ImproperlyConfigured(
            f"DATABASES has no entry {alias!r}: use one of {', '.join(connections.settings)}"
        ) from None


def _in_postgres(connection: Any, mode: str | None) -> Place:
    given = _known(connection, _LIBPQ)
    role = connection.settings_dict["OPTIONS"].get("assume_role")
    if role:  # Django sets it by a statement; in a connection of ours it is there from the start
        escaped = str(role).replace("\\", r"\\").replace(" ", r"\ ")
        given["options"] = f"{given.get('options', '')} -c role={escaped}".strip()
    return Place("postgresql://", given | {"mode": mode or "lease"})


def _in_mysql(connection: Any, mode: str | None) -> Place:
    given = _known(connection, _PYMYSQL | {"host", "port", "user", "password", "database", "db", "passwd", "ssl_mode"})
    host = given.pop("host", "")  # if there is none, a file of MySQL's options may have one
    host = f"[{host}]" if ":" in host else host
    port = given.pop("port", "")
    name = given.pop("database", None) or given.pop("db", "")
    user, password = given.pop("user", ""), given.pop("password", None) or given.pop("passwd", "")
    login = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
    switches = _ssl_mode(connection, given.pop("ssl_mode", None))
    address = f"mysql://{login}{host}{f':{port}' if port else ''}/{quote(str(name), safe='')}"
    return Place(address, {**given, **switches, "mode": mode or "lease"})


def _ssl_mode(connection: Any, told: str | None) -> Mapping[str, object]:
    if told is None:
        return {}
    if told.upper() not in _SSL_MODES:
        raise _not_translated(connection, f"ssl_mode={told}")
    return _SSL_MODES[told.upper()]


def _beside_sqlite(connection: Any, mode: str | None) -> Place:
    if connection.is_in_memory_db():
        return Place(f"memory://django-{quote(connection.alias, safe='')}")
    name = str(connection.settings_dict["NAME"])
    if not name or name.startswith("file:"):
        raise ImproperlyConfigured(
            f"the NAME of DATABASES[{connection.alias!r}] is {'a URI' if name else 'empty'}, and Gripfast needs a "
            "plain path, because it keeps the locks in a file beside the database: use a URL instead of DATABASE in "
            "GRIPFAST, such as sqlite:////var/lib/shop.locks"
        )
    path = Path(name).absolute()
    return Place(f"sqlite:///{quote(f'{path}{LOCKS_BESIDE}')}")


_PLACES = {"postgresql": _in_postgres, "mysql": _in_mysql, "sqlite": _beside_sqlite}


def _known(connection: Any, known: set[str]) -> dict[str, Any]:
    """What Django's own backend gives to its driver. An option that nobody here knows may be one that matters, such as
    one of TLS: it is not ignored."""
    params = {name: value for name, value in connection.get_connection_params().items() if name not in _OF_QUERIES}
    for name in params:
        if name not in known:
            raise _not_translated(connection, name)
    return {name: value for name, value in params.items() if value is not None}


def _not_translated(connection: Any, what: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"DATABASES[{connection.alias!r}] has the option {what}, which Gripfast can't translate for its own "
        "connections: use a URL instead of DATABASE in GRIPFAST"
    )
