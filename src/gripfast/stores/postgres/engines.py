"""Arguments of the drivers that SQLAlchemy uses with PostgreSQL, in libpq's words."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from gripfast.stores.sql import engines

USED = "psycopg"

_OF_QUERIES = {
    "autocommit", "context", "cursor_factory", "prepare_threshold", "row_factory",  # psycopg, psycopg2
    "command_timeout", "connection_class", "loop", "max_cacheable_statement_size", "max_cached_statement_lifetime",
    "prepared_statement_cache_size", "prepared_statement_name_func", "record_class", "reset_query",
    "statement_cache_size", "timeout",  # asyncpg, which has its own idea of how long connecting may take
}  # fmt: skip
_RENAMED = {"database": "dbname"}
_LIBPQ_DRIVERS = {"psycopg", "psycopg2", "psycopg2cffi", "psycopg_async"}
_SAME_IN_ASYNCPG = {
    "gsslib", "host", "krbsrvname", "passfile", "password", "port", "service", "target_session_attrs", "user",
}  # fmt: skip
_SSL_MODES = {"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}


def settings_of(engine: Any, libpq: Container[str]) -> dict[str, str]:
    """What libpq is to be told; `libpq` has its keywords."""

    def translate(name: str, value: Any) -> Mapping[str, str] | None:
        if engine.dialect.driver == "asyncpg" and name in ("ssl", "server_settings"):
            return _ssl(value) if name == "ssl" else _server_settings(value)
        keyword = _RENAMED.get(name, name)
        known = libpq if engine.dialect.driver in _LIBPQ_DRIVERS else _SAME_IN_ASYNCPG | {"dbname"}
        text = _text(value)
        return None if keyword not in known or text is None else {keyword: text}

    return engines.translated(engine, USED, translate, _OF_QUERIES)


def _text(value: Any) -> str | None:
    """Several hosts or ports are a list to asyncpg."""
    if isinstance(value, list | tuple):
        return ",".join(map(str, value))
    return str(value) if isinstance(value, str | int | float) else None


def _ssl(value: Any) -> Mapping[str, str] | None:
    """An SSLContext can't be taken apart. True is a context that verifies by what the system trusts."""
    if value is True:
        return {"sslmode": "verify-full", "sslrootcert": "system"}
    mode = "disable" if value is False else value
    return {"sslmode": mode} if isinstance(mode, str) and mode in _SSL_MODES else None


def _server_settings(value: Any) -> Mapping[str, str] | None:
    if not isinstance(value, dict):
        return None
    words = (f"-c{name}={setting}" for name, setting in value.items())
    return {"options": " ".join(word.replace("\\", r"\\").replace(" ", r"\ ") for word in words)}
