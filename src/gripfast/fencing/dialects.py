"""Which engine's guard serves which connection. A new engine is one module with a `DIALECT`, and one entry here."""

from __future__ import annotations

from gripfast import drivers
from gripfast.drivers import full_name
from gripfast.errors import ConfigurationError
from gripfast.fencing import etcd, mysql, postgres, redis, sqlite
from gripfast.fencing.checks import checked_resource, checked_token
from gripfast.fencing.dialect import Dialect
from gripfast.fencing.shared import guard as guard_shared

DIALECTS: tuple[Dialect, ...] = (postgres.DIALECT, mysql.DIALECT, sqlite.DIALECT)


def guard(connection: object, resource: str, token: int, *, shared: bool = False) -> None:
    """Raise StaleToken if the database has a larger token for the resource; otherwise store this one.

    It is one statement inside your own transaction: guard and write commit, or roll back, together. An equal token is
    the same holder writing again. After StaleToken the transaction is still open: roll it back, as after any error.

    Call guard first, and only then read what the write depends on: until guard returns, a late earlier holder may still
    change the data.

    `shared`: the holder shares the resource with others, as a reader of a read/write lock does. The token is stale only
    if the database has a larger token that was not shared. It needs a second table: `schema(engine, shared=True)`.
    """
    if _is_async(connection):
        raise ConfigurationError(f"a {_kind(connection)} is async: use await gripfast.fencing.async_guard(…)")
    guarding = _guard(connection, checked_resource(resource), checked_token(token), shared)
    try:
        guarding.send(None)  # a connection that blocks never suspends: it runs to its end
    except StopIteration:
        return
    guarding.close()
    raise RuntimeError(f"a {_kind(connection)} behaves as if it were async: use await gripfast.fencing.async_guard(…)")


async def async_guard(connection: object, resource: str, token: int, *, shared: bool = False) -> None:
    """Like `guard`, for async connections."""
    if not _is_async(connection):
        raise ConfigurationError(f"a {_kind(connection)} is not async: use gripfast.fencing.guard(…)")
    await _guard(connection, checked_resource(resource), checked_token(token), shared)


def schema(engine: str, *, shared: bool = False) -> str:
    """The SQL that creates the table in which `guard` keeps its tokens. Running it twice does no harm. With `shared`:
    the SQL of the second table, which only `guard(…, shared=True)` needs."""
    dialect = _dialect(engine)
    if dialect is None:
        raise ConfigurationError(f"no fencing schema for {engine!r}; there is one for: {_known_names()}")
    if not shared:
        return dialect.ddl
    if dialect.shared is None:
        raise _not_shared(dialect)
    return dialect.shared.ddl


async def _guard(connection: object, resource: str, token: int, shared: bool) -> None:
    caller = await drivers.recognised(connection)
    dialect = _dialect(caller.engine)
    if dialect is None:
        raise ConfigurationError(f"no fencing guard for {caller.engine}; there is one for: {_known_names()}")
    if not caller.keeps_transaction:
        raise dialect.needs_a_transaction()
    if not shared:
        await dialect.guard(caller, resource, token)
    elif dialect.shared is None:
        raise _not_shared(dialect)
    else:
        await guard_shared(caller, dialect.shared, resource, token)


def _not_shared(dialect: Dialect) -> ConfigurationError:
    return ConfigurationError(f"the fencing guard for {dialect.name} knows no shared tokens: leave out shared")


def _is_async(connection: object) -> bool:
    colour = drivers.is_async(connection)
    if colour is not None:
        return colour
    if redis.is_client(connection):
        raise ConfigurationError(
            "Redis has no transaction that a guard could join: use "
            "gripfast.fencing.write(client, resource, token, *commands), which checks the token and writes in one step"
        )
    if etcd.is_client(connection):
        raise ConfigurationError(
            "a transaction of etcd's is one request: use gripfast.fencing.put(client, resource, token, key, value), or "
            "gripfast.fencing.compare(client, resource, token) in a transaction of your own"
        )
    raise ConfigurationError(
        f"no fencing guard for a {_kind(connection)}; there is one for connections of {drivers.known()}"
    )


def _dialect(engine: str) -> Dialect | None:
    return next((each for each in DIALECTS if engine in (each.name, *each.other_names)), None)


def _kind(connection: object) -> str:
    return full_name(type(connection))


def _known_names() -> str:
    return ", ".join(dialect.name for dialect in DIALECTS)
