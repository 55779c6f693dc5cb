"""Alembic: one migration at a time. In `env.py`, `with migration_lock(): run_migrations_online()`.

Why it is as it is:

- The lock is a session lock on a connection of its own. A transaction lock on the connection of the migrations would
  end where `CREATE INDEX CONCURRENTLY`, or any other `autocommit_block()`, ends the transaction.
- A waiter polls, with nothing open on the server in between (`migrating.py` says why).
- The lock comes before `context.configure()`, and Alembic reads the heads after it. So who has waited sees what the
  previous holder has done, and does not do it again.
- Each revision is begun only while the lock is held, and recorded only while it is still held. The second check is
  inside the revision's transaction, which it rolls back.
- Only Alembic's error type becomes one line of its command line, so what goes wrong here is raised as `CommandError`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import quote

import sqlalchemy
from alembic import context
from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.util import CommandError

import gripfast
from gripfast.contrib.migrating import acquire_in_turns
from gripfast.errors import (
    ConfigurationError,
    GripfastError,
    LeaseLost,
    LockTimeout,
    Reason,
    StoreUnavailable,
    describe_holder,
)

__all__ = ["migration_lock"]

# Its parent's level is INFO in Alembic's own alembic.ini, which also disables loggers of other names.
_log = logging.getLogger("alembic.gripfast")

OUR_TABLES = "gripfast_"

Steps = Callable[[Any, MigrationContext], Iterable[Any]]
"""Alembic's function that says which revisions are to run, from the heads that the database has."""


@contextlib.contextmanager
def migration_lock(
    target: object = None, *, name: str = "alembic", wait: float | None = 600.0, ttl: float | None = None
) -> Iterator[gripfast.Lease | None]:
    """Hold the lock of the migrations. Use it in `env.py`, around `run_migrations_online()`.

    - `target`: where the lock is. By default that is the database which `sqlalchemy.url` of Alembic's configuration
      names. Pass the URL, the engine (an async one, too) or the connection if `env.py` has it from elsewhere. A
      `gripfast.Client` puts the lock into another store.
    - `name`: of the lock. Migrations with the same name exclude each other.
    - `wait`: seconds to wait while another process migrates; None: for ever. After that the command fails.
    - `ttl`: of the lease, in seconds: how long a machine that was cut off keeps the lock.

    Offline mode (`--sql`) and `alembic current` take no lock: there, the block gets None instead of a lease.
    """
    environment: EnvironmentContext = context._proxy  # type: ignore[attr-defined] # there is no other way to it
    if context.is_offline_mode() or environment.context_opts.get("dont_mutate"):
        yield None
        return
    _check_place(environment)
    with contextlib.ExitStack() as stack:
        with _in_alembics_words(name):
            client, url = _client_of(target, stack)
            lease = _acquired(client, name, wait, ttl, _label(environment))
        _guard(environment, lease, url if target is None else None)
        with _loss_in_alembics_words(name), lease:
            yield lease


# -- where the lock is -------------------------------------------------------------------------------------------------


def _client_of(target: object, stack: contextlib.ExitStack) -> tuple[gripfast.Client, sqlalchemy.URL | None]:
    """With the address; None if it need not be that of the migrations."""
    if isinstance(target, gripfast.Client):
        return target, None
    engine = _engine_of(context.config if target is None else target)
    return stack.enter_context(_connect(engine)), engine.url


def _engine_of(target: Any) -> Any:
    """An Engine, of an async driver, too: only its arguments are used then."""
    if not isinstance(target, (Config, str, sqlalchemy.URL)):
        return target.engine if isinstance(target, sqlalchemy.Connection) else target
    try:
        if isinstance(target, Config):
            section = target.get_section(target.config_ini_section, {})
            return sqlalchemy.engine_from_config(section, prefix="sqlalchemy.", poolclass=sqlalchemy.pool.NullPool)
        return sqlalchemy.create_engine(target, poolclass=sqlalchemy.pool.NullPool)
    except (KeyError, sqlalchemy.exc.ArgumentError) as error:
        where = "sqlalchemy.url of Alembic's configuration" if isinstance(target, Config) else "its argument"
        raise ConfigurationError(
            f"migration_lock() found no database in {where} ({error}). Pass it the URL or the engine that env.py uses, "
            'as in migration_lock(engine), or a client of another store: migration_lock(gripfast.connect("redis://…"))'
        ) from error


def _connect(engine: Any) -> gripfast.Client:
    url = getattr(engine, "url", None)
    if url is None:
        raise ConfigurationError(
            f"migration_lock() takes a URL, an engine, a connection or a client of gripfast.connect(), not {engine!r}"
        )
    if url.get_backend_name() != "sqlite":
        return gripfast.connect(engine, mode="advisory")
    if url.database in (None, "", ":memory:"):  # nobody else can see it
        return gripfast.connect("memory://")
    if url.database.startswith("file:"):
        raise ConfigurationError(
            "migration_lock() needs a plain path to a SQLite file, not a URI: pass it a client instead, as in "
            'migration_lock(gripfast.connect("sqlite:///shop.db.locks"))'
        )
    return gripfast.connect(f"sqlite:///{quote(os.path.realpath(url.database))}.locks")


def _check_place(environment: EnvironmentContext) -> None:
    if environment._migration_context is not None:
        raise CommandError(
            "migration_lock() comes too late: context.configure() was called before, so the heads of the database may "
            "be older than the lock. In env.py, write `with migration_lock(): run_migrations_online()`"
        )


# -- waiting -----------------------------------------------------------------------------------------------------------


def _acquired(client: gripfast.Client, name: str, wait: float | None, ttl: float | None, label: str) -> gripfast.Lease:
    def tell(holder: gripfast.LockInfo | None, waited: float) -> None:
        _log.info("Waiting for the migration lock %r (%.0f s so far): %s", name, waited, describe_holder(holder))

    return acquire_in_turns(client, name, wait, tell, ttl=ttl, label=label, on_lost=_tell_loss)


def _label(environment: EnvironmentContext) -> str:
    function = environment.context_opts.get("fn")
    return f"alembic {getattr(function, '__name__', 'migrations')}"


# -- while it is held --------------------------------------------------------------------------------------------------


def _guard(environment: EnvironmentContext, lease: gripfast.Lease, url: sqlalchemy.URL | None) -> None:
    """Let Alembic look at the lease before and after each revision."""
    options = environment.context_opts
    steps_of: Steps = options["fn"]

    def steps(heads: Any, migration: MigrationContext) -> Iterator[Any]:
        _check_same_database(migration, url)
        _hide_our_tables(migration)
        migration.on_version_apply_callbacks += (lambda **_: lease.ensure_held(),)
        for step in steps_of(heads, migration):
            lease.ensure_held()
            yield step

    options["fn"] = steps


def _check_same_database(migration: MigrationContext, url: sqlalchemy.URL | None) -> None:
    """The default is a guess, which env.py may not share."""
    if url is None or migration.connection is None:
        return
    used = migration.connection.engine.url
    if _place(used) != _place(url):
        raise CommandError(
            f"migration_lock() has locked {_shown(url)}, of Alembic's configuration, but env.py migrates "
            f"{_shown(used)}: pass it the engine that env.py uses, as in migration_lock(engine)"
        )


def _place(url: sqlalchemy.URL) -> tuple[object, ...]:
    return url.get_backend_name(), url.host, url.port, url.database


def _shown(url: sqlalchemy.URL) -> str:
    return url.render_as_string(hide_password=True)


def _hide_our_tables(migration: MigrationContext) -> None:
    """Or --autogenerate would write a revision that drops them."""
    asked: Callable[..., bool] | None = migration.opts.get("include_object")

    def include(thing: Any, name: str | None, kind: str, reflected: bool, compare_to: Any) -> bool:
        is_only_there = kind == "table" and reflected and compare_to is None
        if is_only_there and (name or "").startswith(OUR_TABLES):
            return False
        return asked is None or asked(thing, name, kind, reflected, compare_to)

    migration.opts["include_object"] = include


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def _tell_loss(lease: gripfast.Lease, reason: Reason) -> None:
    _log.error(
        "Lost the migration lock %r (%s): the revision that runs now is not recorded, and no other one is begun",
        lease.name,
        reason,
    )


@contextlib.contextmanager
def _in_alembics_words(name: str) -> Iterator[None]:
    """While the lock is acquired."""
    try:
        yield
    except LockTimeout as error:
        raise _failure(error, name, "Try again later, or wait for longer: migration_lock(wait=SECONDS)") from error
    except StoreUnavailable as error:
        hint = "To reach the lock by another address than the migrations, write migration_lock(url)"
        raise _failure(error, name, hint) from error
    except ConfigurationError as error:
        raise CommandError(str(error)) from error


@contextlib.contextmanager
def _loss_in_alembics_words(name: str) -> Iterator[None]:
    """What a migration raises about other locks stays as it is."""
    try:
        yield
    except LeaseLost as error:
        if error.name != name:
            raise
        raise _failure(error, name, "See what `alembic current` says, and run the command again") from error


def _failure(error: GripfastError, name: str, hint: str) -> CommandError:
    return CommandError(f"the migration lock {name!r}: {error}. {hint}")
