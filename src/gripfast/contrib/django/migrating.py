"""`manage.py migrate` under a lock: of several that are started at the same time, one migrates, the others wait. Each
makes its plan when it has the lock, so whoever comes second finds nothing to do.

The lock is a session's, on a connection of its own: PostgreSQL's advisory lock, or MySQL's GET_LOCK. A lock in a
transaction would end with the first statement that can't run in one, such as CREATE INDEX CONCURRENTLY, and an open
transaction would block that statement. If the process dies, the lock is free at once. A proxy that pools sessions
can't keep it, and is refused.

Nobody waits in the database's own queue: `contrib/migrating.py` says why.

If `GRIPFAST` has an entry `migrate`, the lock is in that store instead: where the database is only reached through a
proxy, say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from gripfast import Client, Lease, LockInfo, durations
from gripfast.contrib.django import checks
from gripfast.contrib.django.conf import SETTING, Entry, config_of, entries
from gripfast.contrib.migrating import acquire_in_turns
from gripfast.errors import ConfigurationError, LeaseLost, LockTimeout, StoreUnavailable, describe_holder

ENTRY = "migrate"
"""Of the setting, if the lock is not to be in the database itself."""
_OTHERWISE = (
    f"Give {SETTING} an entry '{ENTRY}': with a DATABASE whose HOST and PORT are the server's own, or with the URL of "
    "another store. To migrate without the lock, pass --no-lock"
)
_LOST = (
    "Another migrate may run now, so no further migration was begun. Look at what the database has (manage.py "
    "showmigrations), and run migrate again"
)


class UnderLock(BaseCommand):
    """For a command that migrates: put it before the command's own class."""

    _lease: Lease | None = None

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--lock-wait",
            metavar="DURATION",
            help="How long to wait for another migrate: 30 (seconds), 5m. [default: until that has ended]",
        )
        parser.add_argument("--no-lock", action="store_true", help="Take no lock. Then two migrates can run at a time.")

    def check(self, *args: Any, **kwargs: Any) -> Any:
        """Tables that are missing are what this command is about to create."""
        with checks.without_tables():
            return super().check(*args, **kwargs)

    def handle(self, *args: Any, **options: Any) -> Any:
        wait, is_free = _seconds(options.pop("lock_wait", None)), options.pop("no_lock", False)
        if is_free or options.get("plan") or options.get("check_unapplied"):
            return super().handle(*args, **options)
        try:
            with self._held(options["database"], wait, options["verbosity"]) as self._lease:
                return super().handle(*args, **options)
        except LeaseLost as lost:
            raise CommandError(f"{lost}. {_LOST}") from lost
        finally:
            self._lease = None

    def migration_progress_callback(self, action: str, *args: Any, **kwargs: Any) -> None:
        """Before each migration, the lock is still held, or none is begun."""
        if self._lease is not None and action.endswith("apply_start"):
            self._lease.ensure_held()
        super().migration_progress_callback(action, *args, **kwargs)

    @contextlib.contextmanager
    def _held(self, database: str, wait: float | None, verbosity: int) -> Iterator[Lease]:
        def tell(holder: LockInfo | None, waited: float) -> None:
            if verbosity:
                self.stdout.write(f"Waiting for another migrate: {describe_holder(holder)}")
                self.stdout.flush()

        with _client(database) as client, _acquired(client, name_for(database), wait, tell) as lease:
            yield lease


def _acquired(client: Client, name: str, wait: float | None, tell: Callable[[LockInfo | None, float], None]) -> Lease:
    try:
        return acquire_in_turns(client, name, wait, tell, label="manage.py migrate")
    except LockTimeout as error:
        holder = describe_holder(error.holder)
        raise CommandError(f"Another migrate runs: {holder}. Wait longer with --lock-wait") from error
    except (ConfigurationError, StoreUnavailable) as error:
        raise CommandError(f"The lock of migrate can't be taken: {error}. {_OTHERWISE}") from error


def name_for(database: str) -> str:
    """Others may keep locks in the same store, also those of other databases."""
    return f"django:migrate:{connections[database].settings_dict['NAME'] or database}"


def _client(database: str) -> Client:
    """Closed when migrate ends: a database that has connections can't be dropped, as a test runner does."""
    try:
        entry = entries().get(ENTRY) or Entry(ENTRY, database=database, mode="advisory")
        return Client(config_of(entry))
    except (ImproperlyConfigured, ConfigurationError) as error:
        raise CommandError(f"The lock of migrate can't be taken: {error}. {_OTHERWISE}") from error


def _seconds(text: str | None) -> float | None:
    try:
        return None if text is None else durations.read(str(text))
    except ValueError as error:
        raise CommandError(f"--lock-wait {error}") from None
