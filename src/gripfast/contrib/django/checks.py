"""`manage.py check`: what is wrong with the setting `GRIPFAST`, or risky about it.

Three kinds. Without any flag, what the settings say by themselves. With `--deploy`, what is fine for a developer and
not for several servers. With `--database`, what one look through Django's own connection shows. None of them writes
anything, and none connects to a store by itself: that is what `gripfast doctor` is for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, Warning
from django.core.exceptions import ImproperlyConfigured
from django.core.management import get_commands
from django.db import connections

from gripfast.api.config import Config
from gripfast.contrib.django import tables
from gripfast.contrib.django.conf import SETTING, Entry, config_of, entries
from gripfast.errors import ConfigurationError

TAG = "gripfast"
NEEDS_SESSION = ("row", "advisory")
_tables_come: list[None] = []
"""Not empty while `migrate` runs its checks."""


def register() -> None:
    checks.register(check_settings, TAG)
    checks.register(check_migrate, TAG)
    checks.register(check_deployment, TAG, deploy=True)
    checks.register(check_databases, TAG, Tags.database)


@contextlib.contextmanager
def without_tables() -> Iterator[None]:
    """Nothing is said about missing tables."""
    _tables_come.append(None)
    try:
        yield
    finally:
        _tables_come.pop()


def check_settings(**_: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    try:
        known = entries()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="gripfast.E001")]
    for entry in known.values():
        try:
            config_of(entry)
        except (ImproperlyConfigured, ConfigurationError) as error:
            found.append(Error(f"{_named(entry)} does not describe a store: {error}", id="gripfast.E002"))
        found += _check_isolation(entry)
    return found


def _check_isolation(entry: Entry) -> Iterator[CheckMessage]:
    options = connections.settings.get(entry.database or "", {}).get("OPTIONS", {})
    level = options.get("isolation_level")
    is_postgres = entry.database in connections.settings and connections[entry.database].vendor == "postgresql"
    if entry.mode in NEEDS_SESSION and is_postgres and _number(level) > 2:
        yield Warning(
            f"DATABASES[{entry.database!r}] has an isolation level above READ COMMITTED, so within() is refused there",
            hint="Such a transaction would not see what the previous holder wrote. Leave isolation_level out.",
            id="gripfast.W002",
        )


def _number(level: object) -> int:
    """Of an isolation level. Django itself refuses what is none."""
    value = getattr(level, "value", level)
    return value if isinstance(value, int) else 0


def check_migrate(**_: Any) -> list[CheckMessage]:
    app = get_commands().get("migrate")
    if app == "gripfast.contrib.django":
        return []
    return [
        Warning(
            f"manage.py migrate is that of {app}, so it takes no lock: two of them can run at the same time",
            hint="Put 'gripfast.contrib.django' before it in INSTALLED_APPS, or write a migrate command whose class "
            "inherits from gripfast.contrib.django.migrating.UnderLock first, and from that app's command second.",
            id="gripfast.W003",
        )
    ]


def check_deployment(**_: Any) -> list[CheckMessage]:
    """Where the settings are wrong, that was told."""
    found: list[CheckMessage] = []
    for entry, config in _usable():
        if not config.factory.capabilities.processes:
            found.append(
                Error(
                    f"{_named(entry)} keeps locks in the memory of one process: its workers do not see each other",
                    hint="Use a store that all of them share: a database, Redis, or a file.",
                    id="gripfast.E003",
                )
            )
        elif config.kind == "sqlite":
            found.append(
                Warning(
                    f"{_named(entry)} keeps locks in a file ({config.factory.where}): other machines and containers "
                    "do not see them",
                    hint="Use a database (DATABASE) or a server (URL) that all of them share. If there is one machine, "
                    "silence this check.",
                    id="gripfast.W001",
                )
            )
    return found


def check_databases(databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for entry, _config in _usable():
        if entry.database in (databases or ()):
            connection = connections[entry.database]
            found += _check_pooling(entry, connection)
            found += _check_tables(entry, connection)
    return found


def _check_pooling(entry: Entry, connection: Any) -> Iterator[CheckMessage]:
    if connection.vendor != "postgresql" or not _is_pooled(connection):
        return
    if entry.mode in NEEDS_SESSION:
        yield Error(
            f"{_named(entry)} has MODE '{entry.mode}', but its database is reached through a proxy that pools "
            "connections, such as pgbouncer: such locks need a session of their own, and are refused",
            hint="Add an alias with the server's own HOST and PORT to DATABASES, and use it here; or MODE 'lease'.",
            id="gripfast.E004",
        )
    else:
        yield Warning(
            f"{_named(entry)} reaches its database through a proxy that pools connections, such as pgbouncer: leases "
            "work, but waiters are not notified, they poll",
            hint="Add an alias with the server's own HOST and PORT to DATABASES, and use it here.",
            id="gripfast.W004",
        )


def _is_pooled(connection: Any) -> bool:
    """A proxy tells its clients a process number of its own making."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        (pid,) = cursor.fetchone()
        return bool(pid != connection.connection.info.backend_pid)


def _check_tables(entry: Entry, connection: Any) -> Iterator[CheckMessage]:
    if _tables_come or connection.vendor == "sqlite":
        return
    with connection.cursor() as cursor:
        there = set(connection.introspection.table_names(cursor))
    if missing := [name for name in tables.names(connection.vendor) if name not in there]:
        yield Warning(
            f"the database of {_named(entry)} lacks {len(missing)} of Gripfast's tables, such as {missing[0]}",
            hint=f"Run: manage.py migrate gripfast --database {entry.database}. If it says that there is nothing to "
            "apply, somebody has dropped the tables: migrate gripfast to zero first. If its database user may create "
            "tables, Gripfast also creates the tables of locks on first use.",
            id="gripfast.W005",
        )


def _usable() -> Iterator[tuple[Entry, Config]]:
    with contextlib.suppress(ImproperlyConfigured):
        for entry in entries().values():
            with contextlib.suppress(ImproperlyConfigured, ConfigurationError):
                yield entry, config_of(entry)


def _named(entry: Entry) -> str:
    return f"{SETTING}[{entry.alias!r}]"
