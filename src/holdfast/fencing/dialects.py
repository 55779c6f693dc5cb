"""Which engine's guard serves which connection. A new engine is one module with a `DIALECT`, and one entry here."""

from __future__ import annotations

from holdfast.errors import ConfigurationError
from holdfast.fencing import redis, sqlite
from holdfast.fencing.checks import checked_resource, checked_token
from holdfast.fencing.dialect import Dialect, full_name

DIALECTS: tuple[Dialect, ...] = (sqlite.DIALECT,)


def guard(connection: object, resource: str, token: int) -> None:
    """Raise StaleToken if a larger token was seen for the resource; otherwise remember this one.

    One statement inside the caller's own transaction: guard and write commit, or roll back, together. An equal token is
    the same holder writing again. After StaleToken the transaction is still open: roll it back, as after any error.
    """
    _dialect_of(connection).guard(connection, checked_resource(resource), checked_token(token))


def schema(engine: str) -> str:
    """The DDL of the table `guard` keeps its tokens in; safe to run again."""
    for dialect in DIALECTS:
        if dialect.name == engine:
            return dialect.ddl
    raise ConfigurationError(f"no fencing schema for {engine!r}; there is one for: {_known_names()}")


def _dialect_of(connection: object) -> Dialect:
    for dialect in DIALECTS:
        if dialect.speaks(connection):
            return dialect
    if redis.is_client(connection):
        raise ConfigurationError(
            "Redis has no transaction that a guard could join: "
            "holdfast.fencing.write(client, resource, token, *commands) checks the token and writes in one step"
        )
    kind = full_name(type(connection))
    raise ConfigurationError(f"no fencing guard for a {kind}; there is one for: {_known_names()}")


def _known_names() -> str:
    return ", ".join(dialect.name for dialect in DIALECTS)
